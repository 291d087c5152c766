#include "nought/weights/merged_weights.h"

#include "nought/io/convert.h"
#include "nought/weights/adapter_files.h"

namespace nought {

MergedWeights::MergedWeights(const Model& model, const ModelConfig& config, std::unique_ptr<StateSource> weights)
    : layout_(config.weight_layout), adapter_(config.adapter), weights_(std::move(weights)), context_(Context::cpu()) {
  for (const auto& unit : model.units())
    for (const Parameter& parameter : unit->parameters()) parameters_[parameter.name] = &parameter;
}

const MergedWeights::Factors* MergedWeights::factors_of(const Parameter& weight) const {
  const std::string_view layer = layer_of(weight.name, kWeightOfLayer);
  const LowRank* of = adapter_.find(layer);
  if (of == nullptr) return nullptr;
  if (last_.of == weight.name) return &last_;
  const bool is_table = weight.role == ParameterRole::embedding;
  const auto read = [&](char factor) {
    const Parameter& parameter =
        *parameters_.at(is_table ? embedding_factor_name(layer, factor) : low_rank_name(layer, factor));
    Tensor values = context_.empty(parameter.placement.global, DType::f32, Category::workspace);
    weights_->fill(StateKind::master, parameter, Interval{0, values.numel()}, values);
    return values;
  };
  const Tensor a = read('A'), b = read('B');
  const bool out_in = layout_ == WeightLayout::out_in && !is_table;
  last_ = {.of = weight.name,
           .rows = out_in     ? b
                   : is_table ? a
                              : transposed(a, *context_.memory),
           .columns = out_in ? a : transposed(b, *context_.memory),
           .scale = of->scale};
  return &last_;
}

void MergedWeights::add(const Factors& factors, Interval elements, const Tensor& values, int64_t columns) const {
  if (elements.empty()) return;
  const int64_t first = elements.begin / columns, last = ceil_div(elements.end, columns);
  const Tensor product = context_.empty({last - first, columns}, DType::f32, Category::workspace);
  context_.run(MatMul{.a = factors.rows.slice(first, last), .b = factors.columns, .c = product});
  const float* from = product.data<float>() + (elements.begin - first * columns);
  float* into = values.data<float>();
  for (int64_t i = 0; i < elements.size(); ++i) into[i] += static_cast<float>(factors.scale) * from[i];
}

void MergedWeights::fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
                         const Tensor& destination) const {
  const Factors* const factors = kind == StateKind::master ? factors_of(parameter) : nullptr;
  if (factors == nullptr) return weights_->fill(kind, parameter, elements, destination);
  const Tensor sums = context_.empty({destination.numel()}, DType::f32, Category::workspace);
  weights_->fill(kind, parameter, elements, sums);
  const int64_t columns = parameter.placement.global[1];
  for_each_interval(elements, sums,
                    [&](Interval interval, const Tensor& values) { add(*factors, interval, values, columns); });
  convert_elements(DType::f32, sums.raw(), destination.dtype(), destination.raw(), sums.numel());
}

}  // namespace nought
