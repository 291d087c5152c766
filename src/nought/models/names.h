// The Hugging Face names of a decoder's weights, by family. Only this file and config_families.h know families.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nought/models/config.h"

namespace nought {

struct WeightNames {
  std::string token_embedding, position_embedding, final_norm, head;  // layers add ".weight"
  std::string project_in, project_out;                                // between rows of tokens and hidden states
  std::string token_types, embedding_norm;
  std::string score = "score", score_layer, score_norm;  // of a classifier's head

  struct Layer {
    std::string attention_norm, attention_post_norm, mlp_norm, mlp_post_norm;
    std::vector<std::string> qkv;  // three names, or one if they are fused
    std::string q_norm, k_norm;
    std::string attention_out;
    std::string conv_in, conv, conv_out;  // of a short convolution
    std::string delta_qkv, delta_z, delta_conv, delta_norm, delta_a_log, delta_dt_bias, delta_out;
    std::vector<std::string> delta_ba;  // one name, or those of b and a
    std::vector<std::string> up;        // the names of gate and up, or one name
    std::string down;

    std::string sinks;                                                        // the full name of the parameter
    std::string q_down, q_latent_norm, q_up, kv_down, kv_latent_norm, kv_up;  // latent attention
    std::string router, choice_bias, experts, expert_gate, expert_up, expert_down;
    std::string shared_expert;  // a prefix: "...shared_expert.", to which "gate_proj" is added
    std::string shared_gate;
  };
  Layer layer(int64_t index) const;

  static WeightNames of(const ModelConfig& config);

 private:
  Layer gpt2_layer(int64_t index) const;
  Layer gpt_neox_layer(int64_t index) const;
  Layer llama_layer(int64_t index) const;
  Layer opt_layer(int64_t index) const;
  Layer bert_layer(int64_t index) const;
  Layer modernbert_layer(int64_t index) const;
  void add_experts(Layer& layer, const std::string& prefix) const;

  std::string family_;
  NormPlacement norm_placement_ = NormPlacement::pre;
  bool has_q_latent_ = false;
};

/// The names of the same tensor in older or bare checkpoints: the hub's gpt2 says "h.0..." for "transformer.h.0...",
/// what transformers saves without a head "layers.0..." for "model.layers.0...", and the first bert "LayerNorm.gamma".
std::vector<std::string> alternative_names(const std::string& name);
/// One expert's matrix in files that have a layer's experts in two tensors, as those of Qwen3.5 do: "gate_up_proj" is
/// [experts, gate and up, hidden] and "down_proj" [experts, hidden, width].
struct JoinedExpert {
  std::string tensor;
  int64_t expert = 0;
  int64_t matrix = 0, matrices = 1;  // which of those that each expert has in the tensor
};
/// Nothing for what is no expert's "gate_proj", "up_proj" or "down_proj".
std::optional<JoinedExpert> joined_expert(const std::string& name);
/// True for tensors of checkpoints that are not weights: attention masks, rotary frequencies, scales of activations.
bool is_buffer_name(const std::string& name);

}  // namespace nought
