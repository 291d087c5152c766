#include "nought/models/flops.h"

#include <algorithm>

#include "nought/models/decoder.h"

namespace nought {

namespace {

/// Keys and values that a token sees on average, in sequences of so many tokens.
double seen_on_average(int64_t seq_length, int64_t window) {
  const auto length = static_cast<double>(seq_length);
  const double most = window > 0 && window < seq_length ? static_cast<double>(window) : length;
  return most - most * most / (2 * length);
}

/// How many parameters of a Unit a token is multiplied by: no look-ups, and only the experts that it passes.
double multiplied_by(const Unit& unit, const ModelConfig& config) {
  double count = 0;
  for (const Parameter& parameter : unit.parameters()) {
    if (parameter.role == ParameterRole::embedding) continue;
    auto elements = static_cast<double>(parameter.placement.extents().numel());
    if (parameter.role == ParameterRole::expert)
      elements *= static_cast<double>(config.experts->rule.top_k) / static_cast<double>(config.experts->num_experts);
    count += elements;
  }
  return count;
}

}  // namespace

std::vector<double> unit_flops_per_token(const Decoder& whole, int64_t seq_length) {
  const ModelConfig& config = whole.config();
  const auto heads = static_cast<double>(config.num_heads * config.head_dim);
  std::vector<double> flops;
  for (const auto& unit : whole.units()) flops.push_back(6 * multiplied_by(*unit, config));
  if (config.tie_word_embeddings) flops.back() += 6 * static_cast<double>(config.vocab_size * config.token_width());
  for (size_t layer = 0; layer < config.sliding_windows.size(); ++layer) {
    const LayerKind kind = config.kind_of(static_cast<int64_t>(layer));
    if (kind == LayerKind::attention)
      flops[layer + 1] += 12 * heads * seen_on_average(seq_length, config.sliding_windows[layer]);
    if (kind == LayerKind::delta) flops[layer + 1] += 3 * config.delta->shape.flops_per_token();
  }
  return flops;
}

double frozen_flops_per_token(const Decoder& decoder, int64_t seq_length) {
  const ModelConfig& config = decoder.config();
  const auto last = std::find_if(decoder.units().rbegin(), decoder.units().rend(),
                                 [](const auto& unit) { return unit->tile_of() == nullptr; });
  double saved = 0;
  int64_t layer = 0;
  bool below = true;  // no parameter up to here is trained: the walk back ends before
  for (const auto& each : decoder.units()) {
    const Unit& unit = *each;
    const bool is_tile = unit.tile_of() != nullptr;
    if (!is_tile) below = below && !unit.trained();  // with its tiles, which follow it
    for (const Parameter& parameter : unit.parameters()) {
      const Shape& shape = parameter.placement.global;
      const bool lookup = parameter.role == ParameterRole::embedding;
      const bool tied_head = lookup && config.tie_word_embeddings && shape[0] == config.vocab_size;
      if ((lookup && !tied_head) || !can_be_trained(parameter.role)) continue;
      auto weights = static_cast<double>(parameter.placement.extents().numel());
      if (parameter.role == ParameterRole::expert)
        weights *= static_cast<double>(config.experts->rule.top_k) / static_cast<double>(config.experts->num_experts);
      if (!parameter.trainable) saved += 2 * weights;
      if (below && !lookup) saved += 2 * weights;
    }
    const bool is_block = !is_tile && each != decoder.units().front() && each != *last;
    if (!is_block) continue;
    const LayerKind kind = config.kind_of(layer++);
    if (below && kind == LayerKind::attention)
      saved += 4 * static_cast<double>(config.num_heads * config.head_dim * seq_length);
    if (below && kind == LayerKind::delta) saved += 2 * config.delta->shape.flops_per_token();
  }
  return saved;
}

}  // namespace nought
