// A llama of a few thousand parameters whose tokens are bytes.
#pragma once

#include <nlohmann/json.hpp>

#include "nought/models/config.h"

namespace nought::test {

inline nlohmann::json tiny_llama_json(int64_t layers = 2) {
  return {{"model_type", "llama"},         {"vocab_size", 256},           {"hidden_size", 16},
          {"intermediate_size", 24},       {"num_hidden_layers", layers}, {"num_attention_heads", 2},
          {"max_position_embeddings", 32}, {"tie_word_embeddings", false}};
}

inline ModelConfig tiny_llama(int64_t layers = 2) { return ModelConfig::from_json(tiny_llama_json(layers)); }

}  // namespace nought::test
