#include "nought/weights/merged_weights.h"

#include <algorithm>

#include "nought/io/convert.h"
#include "nought/weights/adapter_files.h"

namespace nought {

MergedWeights::MergedWeights(const Model& model, const ModelConfig& config, std::unique_ptr<StateSource> weights)
    : layout_(config.weight_layout), adapter_(config.adapter), weights_(std::move(weights)), context_(Context::cpu()) {
  for (const auto& unit : model.units())
    for (const Parameter& parameter : unit->parameters()) parameters_[parameter.name] = &parameter;
  const bool of_experts = std::any_of(adapter_.layers.begin(), adapter_.layers.end(),
                                      [](const auto& each) { return each.second.of_experts; });
  if (of_experts) experts_ = expert_parts(config);
  if (config.experts && config.experts->storage == ExpertStorage::halves) experts_layout_ = WeightLayout::out_in;
  for (int64_t i = 0; i < config.num_layers; ++i)
    if (config.has_experts(i)) {
      const WeightNames::Layer names = WeightNames::of(config).layer(i);
      routers_[names.router] = expert_modules(names).router;
    }
  for (const auto& [layer, of] : adapter_.layers)
    require<ConfigError>(!of.bias || parameters_.contains(std::string(layer).append(kBiasOfLayer)),
                         "{} has no bias that the adapter's (lora_bias) could be merged into: use it unmerged", layer);
}

Tensor MergedWeights::read(const Parameter& parameter) const {
  Tensor values = context_.empty(parameter.placement.global, DType::f32, Category::workspace);
  weights_->fill(StateKind::master, parameter, Interval{0, values.numel()}, values);
  return values;
}

Tensor MergedWeights::with_bias_of_b(const Parameter& bias, const LowRank& of) const {
  const Tensor sum = read(bias), added = read(*parameters_.at(low_rank_bias_name(layer_of(bias.name, kBiasOfLayer))));
  context_.run(Scale{.x = added, .factor = of.scale});
  context_.run(AddTo{.x = added, .into = sum});
  return sum;
}

Tensor MergedWeights::with_token_rows(const Parameter& weight, const std::vector<int32_t>& tokens) const {
  const Tensor all = read(weight), rows = read(*parameters_.at(token_rows_name(layer_of(weight.name, kWeightOfLayer))));
  for (int64_t i = 0; i < rows.dim(0); ++i) {
    const int64_t token = tokens[static_cast<size_t>(i)];
    context_.copy(rows.slice(i, i + 1), all.slice(token, token + 1));
  }
  return all;
}

const MergedWeights::Change* MergedWeights::change_of(const Parameter& weight) const {
  if (weight.role == ParameterRole::bias) {
    const LowRank* with = adapter_.find(layer_of(weight.name, kBiasOfLayer));
    if (with == nullptr || !with->bias) return nullptr;
    if (last_.of != weight.name) last_ = {.of = weight.name, .factors = {}, .whole = with_bias_of_b(weight, *with)};
    return &last_;
  }
  if (last_.of == weight.name) return &last_;
  if (const auto part = experts_.find(weight.name); part != experts_.end())
    return change_of_expert(weight, part->second);
  if (const LowRank* experts = adapter_.find(weight.name)) return change_of_experts(weight, *experts);
  std::string layer(layer_of(weight.name, kWeightOfLayer));
  if (const auto router = routers_.find(layer); router != routers_.end()) layer = router->second;
  if (const auto tokens = adapter_.tokens.find(layer); tokens != adapter_.tokens.end()) {
    last_ = {.of = weight.name, .factors = {}, .whole = with_token_rows(weight, tokens->second)};
    return &last_;
  }
  const LowRank* of = adapter_.find(layer);
  if (of == nullptr) return nullptr;
  const bool is_table = weight.role == ParameterRole::embedding;
  const auto factor = [&](char which) {
    return read(*parameters_.at(is_table ? embedding_factor_name(layer, which) : low_rank_name(layer, which)));
  };
  // A of a table has its rows: the table is [in, out], and A is the transpose already.
  const Tensor a = factor('A'), b = factor('B');
  WeightFactors factors =
      is_table ? WeightFactors{a, transposed(b, *context_.memory), of->scale}
               : weight_factors(a, b, weight.role == ParameterRole::matrix ? layout_ : WeightLayout::out_in, of->scale,
                                *context_.memory);
  last_ = {.of = weight.name, .factors = {std::move(factors)}, .whole = {}};
  if (of->decomposed) last_.whole = decomposed(weight, last_.factors.front());
  return &last_;
}

const MergedWeights::Change* MergedWeights::change_of_expert(const Parameter& weight, const ExpertPart& part) const {
  const LowRank* of = adapter_.find(part.layer);
  if (of == nullptr) return nullptr;
  const auto of_expert = [&](char factor) {
    const Tensor all = read(*parameters_.at(low_rank_name(part.layer, factor)));
    return all.slice(part.expert, part.expert + 1).reshape({all.dim(1), all.dim(2)});
  };
  const Tensor b = of_expert('B').slice(part.begin, part.end);
  last_ = {.of = weight.name, .factors = {{b, of_expert('A'), of->scale}}, .whole = {}};
  return &last_;
}

const MergedWeights::Change* MergedWeights::change_of_experts(const Parameter& weight, const LowRank& of) const {
  const Tensor a = read(*parameters_.at(low_rank_name(weight.name, 'A'))),
               b = read(*parameters_.at(low_rank_name(weight.name, 'B')));
  const auto matrix = [](const Tensor& all, int64_t expert) {
    return all.slice(expert, expert + 1).reshape({all.dim(1), all.dim(2)});
  };
  last_ = {.of = weight.name, .factors = {}, .whole = {}};
  for (int64_t e = 0; e < a.dim(0); ++e)
    last_.factors.push_back(weight_factors(matrix(a, e), matrix(b, e), experts_layout_, of.scale, *context_.memory));
  return &last_;
}

Tensor MergedWeights::decomposed(const Parameter& weight, const WeightFactors& factors) const {
  const Tensor sum = read(weight);
  add_product(context_, factors, 0, sum);
  const Tensor norms = output_norms(context_, sum, layout_),
               magnitudes = read(*parameters_.at(magnitude_name(layer_of(weight.name, kWeightOfLayer))));
  const bool out_in = layout_ == WeightLayout::out_in;
  const int64_t columns = sum.dim(1);
  for (int64_t i = 0; i < sum.numel(); ++i) {
    const int64_t output = out_in ? i / columns : i % columns;
    sum.data<float>()[i] *= magnitudes.data<float>()[output] / norms.data<float>()[output];
  }
  return sum;
}

void MergedWeights::add(const std::vector<WeightFactors>& factors, Interval elements, const Tensor& values,
                        const Shape& shape) const {
  const int64_t matrix = shape.numel() / std::ssize(factors);
  for (int64_t begin = elements.begin; begin < elements.end;) {
    const int64_t index = begin / matrix, first = index * matrix, end = std::min(elements.end, first + matrix);
    add_to_matrix(factors[static_cast<size_t>(index)], {begin - first, end - first},
                  values.flat(begin - elements.begin, end - elements.begin), shape[shape.rank() - 1]);
    begin = end;
  }
}

void MergedWeights::add_to_matrix(const WeightFactors& factors, Interval elements, const Tensor& values,
                                  int64_t columns) const {
  const int64_t first = elements.begin / columns, last = ceil_div(elements.end, columns);
  const Tensor product = context_.empty({last - first, columns}, DType::f32, Category::workspace);
  context_.run(MatMul{.a = factors.rows.slice(first, last), .b = factors.columns, .c = product});
  const float* from = product.data<float>() + (elements.begin - first * columns);
  float* into = values.data<float>();
  for (int64_t i = 0; i < elements.size(); ++i) into[i] += static_cast<float>(factors.scale) * from[i];
}

void MergedWeights::fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
                         const Tensor& destination) const {
  // The model that is read trains what the merged one has, but for the adapter: a checkpoint tells them apart by that.
  const auto own = parameters_.find(parameter.name);
  Parameter frozen = own != parameters_.end() ? *own->second : parameter;
  if (own == parameters_.end()) frozen.trainable = false;
  const Change* const change = kind == StateKind::master ? change_of(frozen) : nullptr;
  if (change == nullptr) return weights_->fill(kind, frozen, elements, destination);
  const Tensor sums = context_.empty({destination.numel()}, DType::f32, Category::workspace);
  if (!change->whole) weights_->fill(kind, frozen, elements, sums);
  for_each_interval(elements, sums, [&](Interval interval, const Tensor& values) {
    if (change->whole) return context_.copy(change->whole.flat(interval.begin, interval.end), values);
    add(change->factors, interval, values, parameter.placement.global);
  });
  convert_elements(DType::f32, sums.raw(), destination.dtype(), destination.raw(), sums.numel());
}

}  // namespace nought
