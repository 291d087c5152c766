#include "nought/models/flops.h"

#include "nought/models/decoder.h"

namespace nought {

double frozen_flops_per_token(const Decoder& decoder, int64_t seq_length) {
  const ModelConfig& config = decoder.config();
  const size_t count = decoder.units().size();
  double saved = 0;
  bool below = true;  // no parameter up to here is trained: the walk back ends before
  for (size_t i = 0; i < count; ++i) {
    const Unit& unit = *decoder.units()[i];
    below = below && !unit.trained();
    for (const Parameter& parameter : unit.parameters()) {
      const Shape& shape = parameter.placement.global;
      const bool lookup = parameter.role == ParameterRole::embedding;
      const bool tied_head = lookup && config.tie_word_embeddings && shape[0] == config.vocab_size;
      if ((lookup && !tied_head) || !can_be_trained(parameter.role)) continue;
      auto weights = static_cast<double>(shape.numel());
      if (parameter.role == ParameterRole::expert)
        weights *= static_cast<double>(config.experts->rule.top_k) / static_cast<double>(config.experts->num_experts);
      if (!parameter.trainable) saved += 2 * weights;
      if (below && !lookup) saved += 2 * weights;
    }
    const bool is_block = 0 < i && i + 1 < count;
    if (below && is_block) saved += 4 * static_cast<double>(config.num_heads * config.head_dim * seq_length);
  }
  return saved;
}

}  // namespace nought
