#include "nought/zero/rounded_weights.h"

#include <algorithm>
#include <optional>

#include "nought/base/name_pattern.h"
#include "nought/base/text.h"
#include "nought/tensor/random.h"
#include "nought/zero/placement.h"
#include "nought/zero/residency.h"
#include "nought/zero/whole_tensor.h"

namespace nought {

namespace {

constexpr std::string_view kKey = "compression_training.weight_quantization.different_groups";

bool has_a_layer(ParameterRole role) { return can_be_quantized(role) || role == ParameterRole::router; }

/// The name of the layer whose weight it is, as Hugging Face's modules are named.
std::string layer_of(const Parameter& parameter) {
  constexpr std::string_view kWeight = ".weight";
  std::string name = parameter.name;
  if (name.ends_with(kWeight)) name.resize(name.size() - kWeight.size());
  return name;
}

/// Experts of a layer that lie in one tensor are matrices of their own.
int64_t matrices_of(const Parameter& parameter) {
  const Shape& shape = parameter.placement.global;
  return shape.rank() > 2 ? shape[0] : 1;
}

/// The cuts of which each rank has a part. Where one rank has all, no other computes with it.
Placement cut_by_ranks(Placement placement) {
  std::erase_if(placement.cuts, [](const Cut& cut) { return cut.owner.has_value(); });
  return placement;
}

/// Which group each layer of a model is in.
class LayerChoice {
 public:
  LayerChoice(const WeightQuantization& quantization, const Model& model) : quantization_(quantization) {
    for (size_t unit = 0; unit < model.units().size(); ++unit) {
      const std::vector<Parameter>& parameters = model.units()[unit]->parameters();
      for (size_t i = 0; i < parameters.size(); ++i)
        if (has_a_layer(parameters[i].role) && parameters[i].placement.global.rank() >= 2)
          layers_.push_back({.unit = unit, .index = i, .parameter = &parameters[i]});
    }
    for (size_t group = 0; group < quantization.groups.size(); ++group) choose(group);
  }

  std::vector<RoundedWeight> chosen() const {
    std::vector<RoundedWeight> weights;
    for (const Layer& layer : layers_)
      if (layer.group)
        weights.push_back(
            {.unit = layer.unit, .parameter = layer.index, .group = *layer.group, .pieces = pieces_of(layer)});
    return weights;
  }

 private:
  struct Layer {
    size_t unit, index;
    const Parameter* parameter;
    std::optional<size_t> group = {};
  };

  std::string place_of(size_t group) const { return fmt::format("{}.{}", kKey, quantization_.groups[group].name); }

  void choose(size_t group) {
    for (const std::string& text : quantization_.groups[group].modules) {
      const NamePattern pattern = compiled(text, group);
      bool found = false;
      for (Layer& layer : layers_) {
        const std::string name = layer_of(*layer.parameter);
        if (!pattern.found_in(name)) continue;
        found = true;
        require<ConfigError>(!layer.group || *layer.group == group,
                             "{}: \"{}\" matches {}, which is in {} already: a layer is in one group", place_of(group),
                             text, name, layer.group ? quantization_.groups[*layer.group].name : "");
        layer.group = group;
      }
      if (!found) refuse(text, group);
    }
  }

  NamePattern compiled(const std::string& text, size_t group) const {
    try {
      return NamePattern(text);
    } catch (const ConfigError& error) {
      fail<ConfigError>("{}.modules: {}", place_of(group), error.what());
    }
  }

  [[noreturn]] void refuse(const std::string& text, size_t group) const {
    std::string nearest;
    std::pair<size_t, size_t> least{SIZE_MAX, SIZE_MAX};
    for (const Layer& layer : layers_) {
      const std::string name = layer_of(*layer.parameter);
      const std::pair distance{edit_distance_within(text, name), edit_distance(text, name)};
      if (distance < least) least = distance, nearest = name;
    }
    fail<ConfigError>("{}.modules: \"{}\" matches no matrix or table; the nearest is {}", place_of(group), text,
                      nearest);
  }

  int64_t pieces_of(const Layer& layer) const {
    const Parameter& parameter = *layer.parameter;
    const std::string name = layer_of(parameter), place = place_of(*layer.group);
    require<ConfigError>(!parameter.quantized, "{}: {} is kept in codes of few bits already: leave it out of modules",
                         place, name);
    require<ConfigError>(!parameter.placement.tile,
                         "{}: {} is cut into tiles: leave training.memory_centric_tiling out", place, name);
    const Shape& shape = parameter.placement.global;
    if (parameter.role == ParameterRole::embedding) return shape[0];
    const int64_t matrices = matrices_of(parameter);
    require<ConfigError>(shape.numel() / matrices % quantization_.quantize_groups == 0,
                         "{}: the {} elements of {} do not divide into quantize_groups = {}", place,
                         shape.numel() / matrices, name, quantization_.quantize_groups);
    return matrices * quantization_.quantize_groups;
  }

  const WeightQuantization& quantization_;
  std::vector<Layer> layers_;
};

}  // namespace

std::vector<RoundedWeight> rounded_weights(const WeightQuantization& quantization, const Model& model) {
  return LayerChoice(quantization, model).chosen();
}

std::vector<std::string> describe_rounded_weights(const WeightQuantization& quantization, const Model& model) {
  std::vector<std::vector<std::string>> names(quantization.groups.size());
  for (const RoundedWeight& weight : rounded_weights(quantization, model))
    names[weight.group].push_back(layer_of(model.units()[weight.unit]->parameters()[weight.parameter]));
  std::vector<std::string> lines;
  for (size_t group = 0; group < names.size(); ++group) {
    const std::string layers = names[group].size() == 1 ? names[group].front()
                                                        : fmt::format("{} layers, {} to {}", names[group].size(),
                                                                      names[group].front(), names[group].back());
    lines.push_back(fmt::format("weight_quantization {}: {}: {}", quantization.groups[group].name,
                                quantization.describe(quantization.groups[group]), layers));
  }
  return lines;
}

RoundedWeights::RoundedWeights(const Context& context, const Mesh& mesh, const WeightQuantization& quantization,
                               const Model& model)
    : context_(context), mesh_(mesh), quantization_(quantization), model_(model), states_(model.units().size()) {
  for (const RoundedWeight& weight : rounded_weights(quantization_, model_))
    if (!model_.units()[weight.unit]->elsewhere()) states_[weight.unit].weights.push_back(weight);
}

void RoundedWeights::begin_pass(size_t unit, const Residency& residency, int64_t updates) {
  State& state = states_[unit];
  if (state.weights.empty() || state.passes++ > 0) return;
  if (context_.memory->is_virtual()) updates = std::max(updates, quantization_.schedule_offset);  // what will be needed
  state.segments.resize(model_.units()[unit]->segments().size());
  for (const RoundedWeight& weight : state.weights) {
    const auto rounding = quantization_.rounding_at(quantization_.groups[weight.group], updates);
    if (!rounding) continue;
    const Parameter& parameter = model_.units()[unit]->parameters()[weight.parameter];
    Tensor& segment = state.segments[parameter.segment];
    if (!segment) {
      const Tensor stored = residency.whole({unit, parameter.segment});
      segment = context_.empty(stored.shape(), stored.dtype(), Category::parameters);
      context_.copy(stored, segment);
    }
    round(weight, *rounding, updates, segment.flat(parameter.range.begin, parameter.range.end));
  }
}

void RoundedWeights::end_pass(size_t unit) {
  State& state = states_[unit];
  if (state.weights.empty() || --state.passes > 0) return;
  state.segments.clear();
}

Tensor RoundedWeights::values(SegmentIndex at) const {
  const std::vector<Tensor>& segments = states_[at.unit].segments;
  return segments.empty() ? Tensor{} : segments[at.segment];
}

void RoundedWeights::round(const RoundedWeight& weight, const WeightRounding& rounding, int64_t updates,
                           const Tensor& held) const {
  const Parameter& parameter = model_.units()[weight.unit]->parameters()[weight.parameter];
  const Placement shared = cut_by_ranks(parameter.placement);
  Tensor whole = held;
  if (!shared.cuts.empty()) {
    const Tensor joined = without_last_cuts(context_, mesh_, shared, held.reshape(parameter.shape), 0);
    whole = joined.flat(0, joined.numel());
  }
  Tensor values = whole;
  if (held.dtype() != DType::f32) {
    values = context_.empty(whole.shape(), DType::f32, Category::workspace);
    context_.run(Cast{.x = whole, .y = values});
  }
  round_whole(weight, rounding, updates, values);
  if (held.dtype() != DType::f32) context_.run(Cast{.x = values, .y = whole});
  if (shared.cuts.empty() || context_.memory->is_virtual()) return;  // cuts of columns have a run for each row
  for (const PartRun& run : PlacedTensor(shared, mesh_.grid()).held_by(mesh_.world().rank()).runs())
    context_.copy(whole.flat(run.global.begin, run.global.end), held.flat(run.local.begin, run.local.end));
}

void RoundedWeights::round_whole(const RoundedWeight& weight, const WeightRounding& rounding, int64_t updates,
                                 const Tensor& whole) const {
  const Parameter& parameter = model_.units()[weight.unit]->parameters()[weight.parameter];
  const auto workspace = [&] { return context_.empty({whole.numel()}, DType::f32, Category::workspace); };
  const bool draws = rounding.stochastic && rounding.quantizer.bits > 2, mixes = rounding.unquantized_share > 0;
  const Tensor host = context_.on_host(whole), result = mixes ? context_.on_host(workspace()) : host;
  const Tensor dither = draws ? context_.on_host(workspace()) : Tensor{};
  if (context_.memory->is_virtual()) return;
  const auto count = static_cast<size_t>(whole.numel());
  if (draws) {
    const uint64_t key = stable_hash(parameter.name, quantization_.seed + static_cast<uint64_t>(updates));
    for (int64_t i = 0; i < whole.numel(); ++i)
      dither.data<float>()[i] = static_cast<float>(uniform_at(key, static_cast<uint64_t>(i)) - 0.5);
  }
  round_weights(rounding, weight.pieces, {host.data<float>(), count}, {result.data<float>(), count},
                draws ? std::span<const float>(dither.data<float>(), count) : std::span<const float>());
  if (result.data<float>() != whole.data<float>()) context_.copy(context_.on_device(result), whole);
}

}  // namespace nought
