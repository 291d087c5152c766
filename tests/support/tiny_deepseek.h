// A deepseek of two layers: a dense one, and one of experts whose choice a bias steers that is never trained.
#pragma once

#include <nlohmann/json.hpp>

#include "nought/models/config.h"

namespace nought::test {

inline ModelConfig tiny_deepseek(int64_t vocabulary) {
  return ModelConfig::from_json({{"model_type", "deepseek_v3"},
                                 {"vocab_size", vocabulary},
                                 {"hidden_size", 24},
                                 {"intermediate_size", 40},
                                 {"moe_intermediate_size", 12},
                                 {"num_hidden_layers", 2},
                                 {"num_attention_heads", 2},
                                 {"num_key_value_heads", 2},
                                 {"kv_lora_rank", 8},
                                 {"q_lora_rank", 10},
                                 {"qk_rope_head_dim", 4},
                                 {"qk_nope_head_dim", 6},
                                 {"v_head_dim", 6},
                                 {"n_routed_experts", 6},
                                 {"n_shared_experts", 1},
                                 {"num_experts_per_tok", 2},
                                 {"n_group", 1},
                                 {"topk_group", 1},
                                 {"first_k_dense_replace", 1},
                                 {"max_position_embeddings", 64}});
}

}  // namespace nought::test
