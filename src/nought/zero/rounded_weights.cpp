#include "nought/zero/rounded_weights.h"

#include <fmt/core.h>

#include "nought/base/text.h"
#include "nought/tensor/random.h"
#include "nought/zero/layer_groups.h"

namespace nought {

namespace {

const std::string kSection = "compression_training.weight_quantization.different_groups";

std::vector<NamedPatterns> patterns_of(const WeightQuantization& quantization) {
  std::vector<NamedPatterns> groups;
  for (const WeightGroup& group : quantization.groups) groups.push_back({group.name, group.modules});
  return groups;
}

/// Experts of a layer that lie in one tensor are matrices of their own.
int64_t matrices_of(const Parameter& parameter) {
  const Shape& shape = parameter.placement.global;
  return shape.rank() > 2 ? shape[0] : 1;
}

/// In so many groups of neighbours the elements of a parameter are rounded.
int64_t pieces_of(const WeightQuantization& quantization, const ChosenLayer& layer, const Parameter& parameter) {
  const Shape& shape = parameter.placement.global;
  if (parameter.role == ParameterRole::embedding) return shape[0];
  const int64_t matrices = matrices_of(parameter);
  require<ConfigError>(shape.numel() / matrices % quantization.quantize_groups == 0,
                       "{}.{}: the {} elements of {} do not divide into quantize_groups = {}", kSection,
                       quantization.groups[layer.group].name, shape.numel() / matrices, layer_of(parameter),
                       quantization.quantize_groups);
  return matrices * quantization.quantize_groups;
}

}  // namespace

std::vector<RoundedWeight> rounded_weights(const WeightQuantization& quantization, const Model& model) {
  std::vector<RoundedWeight> weights;
  for (const ChosenLayer& layer : layers_of_groups(kSection, patterns_of(quantization), model)) {
    const Parameter& parameter = model.units()[layer.unit]->parameters()[layer.parameter];
    weights.push_back({.unit = layer.unit,
                       .parameter = layer.parameter,
                       .group = layer.group,
                       .pieces = pieces_of(quantization, layer, parameter)});
  }
  return weights;
}

std::vector<std::string> describe_rounded_weights(const WeightQuantization& quantization, const Model& model) {
  std::vector<ChosenLayer> layers;
  for (const RoundedWeight& weight : rounded_weights(quantization, model))
    layers.push_back({weight.unit, weight.parameter, weight.group});
  std::vector<std::string> lines = describe_layers(layers, quantization.groups.size(), model);
  for (size_t group = 0; group < lines.size(); ++group)
    lines[group] = fmt::format("weight_quantization {}: {}: {}", quantization.groups[group].name,
                               quantization.describe(quantization.groups[group]), lines[group]);
  return lines;
}

namespace {

class GroupRounding final : public WeightChange {
 public:
  GroupRounding(const WeightQuantization& quantization, const RoundedWeight& weight)
      : quantization_(quantization), weight_(weight) {}

  int64_t start() const override { return quantization_.schedule_offset; }
  void apply(const Context& context, const Parameter& parameter, int64_t updates, const Tensor& whole) const override {
    const auto rounding = quantization_.rounding_at(quantization_.groups[weight_.group], updates);
    if (!rounding) return;
    if (whole.dtype() == DType::f32) return round(context, parameter, *rounding, updates, whole);
    const Tensor values = context.empty(whole.shape(), DType::f32, Category::workspace);
    context.run(Cast{.x = whole, .y = values});
    round(context, parameter, *rounding, updates, values);
    context.run(Cast{.x = values, .y = whole});
  }

 private:
  /// Rounds values of f32.
  void round(const Context& context, const Parameter& parameter, const WeightRounding& rounding, int64_t updates,
             const Tensor& whole) const {
    const auto workspace = [&] { return context.empty({whole.numel()}, DType::f32, Category::workspace); };
    const bool draws = rounding.stochastic && rounding.quantizer.bits > 2, mixes = rounding.unquantized_share > 0;
    const Tensor host = context.on_host(whole), result = mixes ? context.on_host(workspace()) : host;
    const Tensor dither = draws ? context.on_host(workspace()) : Tensor{};
    if (context.memory->is_virtual()) return;
    const auto count = static_cast<size_t>(whole.numel());
    if (draws) {
      const uint64_t key = stable_hash(parameter.name, quantization_.seed + static_cast<uint64_t>(updates));
      for (int64_t i = 0; i < whole.numel(); ++i)
        dither.data<float>()[i] = static_cast<float>(uniform_at(key, static_cast<uint64_t>(i)) - 0.5);
    }
    round_weights(rounding, weight_.pieces, {host.data<float>(), count}, {result.data<float>(), count},
                  draws ? std::span<const float>(dither.data<float>(), count) : std::span<const float>());
    if (result.data<float>() != whole.data<float>()) context.copy(context.on_device(result), whole);
  }

  WeightQuantization quantization_;
  RoundedWeight weight_;
};

}  // namespace

std::shared_ptr<const WeightChange> rounding_of(const WeightQuantization& quantization, const RoundedWeight& weight) {
  return std::make_shared<GroupRounding>(quantization, weight);
}

}  // namespace nought
