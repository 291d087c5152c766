// The Hugging Face names of a decoder's weights, by family: the only place, with config_families.h, that knows
// families.
#pragma once

#include <string>
#include <vector>

#include "nought/models/config.h"

namespace nought {

struct WeightNames {
  std::string token_embedding, position_embedding, final_norm, head;  // ".weight" is added to those that need it

  struct Layer {
    std::string attention_norm, attention_post_norm, mlp_norm, mlp_post_norm;
    std::vector<std::string> qkv;  // one name if fused
    std::string q_norm, k_norm;
    std::string attention_out;
    std::vector<std::string> up;  // gate and up, or one
    std::string down;

    std::string sinks;                                                        // full names, as all without ".weight"
    std::string q_down, q_latent_norm, q_up, kv_down, kv_latent_norm, kv_up;  // of latent attention
    std::string router, choice_bias, experts, expert_gate, expert_up, expert_down;
    std::string shared_expert, shared_gate;  // "...shared_expert." is before "gate_proj"
  };
  Layer layer(int64_t index) const;

  static WeightNames of(const ModelConfig& config);

 private:
  Layer gpt2_layer(int64_t index) const;
  Layer gpt_neox_layer(int64_t index) const;
  Layer llama_layer(int64_t index) const;
  void add_experts(Layer& layer, const std::string& prefix) const;

  std::string family_;
  NormPlacement norm_placement_ = NormPlacement::pre;
  bool has_q_latent_ = false;
};

/// The name under which older or bare checkpoints keep the same tensor ("transformer.h.0..." is "h.0..." in the hub's
/// gpt2); "" if there is none.
std::string alternative_name(const std::string& name);
/// True for tensors of old checkpoints that hold no weights (attention masks, rotary frequencies).
bool is_buffer_name(const std::string& name);

}  // namespace nought
