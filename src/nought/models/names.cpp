#include "nought/models/names.h"

#include <string_view>

namespace nought {

WeightNames WeightNames::of(const ModelConfig& config) {
  WeightNames names;
  names.family_ = config.family;
  if (config.family == "gpt2") {
    names.token_embedding = "transformer.wte";
    names.position_embedding = "transformer.wpe";
    names.final_norm = "transformer.ln_f";
  } else {
    names.token_embedding = "model.embed_tokens";
    names.final_norm = "model.norm";
  }
  names.head = "lm_head";
  return names;
}

WeightNames::Layer WeightNames::layer(int64_t index) const {
  Layer layer;
  if (family_ == "gpt2") {
    const std::string prefix = fmt::format("transformer.h.{}.", index);
    layer.attention_norm = prefix + "ln_1";
    layer.qkv = {prefix + "attn.c_attn"};
    layer.attention_out = prefix + "attn.c_proj";
    layer.mlp_norm = prefix + "ln_2";
    layer.up = {prefix + "mlp.c_fc"};
    layer.down = prefix + "mlp.c_proj";
  } else {
    const std::string prefix = fmt::format("model.layers.{}.", index);
    layer.attention_norm = prefix + "input_layernorm";
    layer.qkv = {prefix + "self_attn.q_proj", prefix + "self_attn.k_proj", prefix + "self_attn.v_proj"};
    layer.attention_out = prefix + "self_attn.o_proj";
    layer.mlp_norm = prefix + "post_attention_layernorm";
    layer.up = {prefix + "mlp.gate_proj", prefix + "mlp.up_proj"};
    layer.down = prefix + "mlp.down_proj";
  }
  return layer;
}

std::string alternative_name(const std::string& name) {
  constexpr std::string_view kPrefix = "transformer.";
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : "";
}

bool is_buffer_name(const std::string& name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name.ends_with(".rotary_emb.inv_freq");
}

}  // namespace nought
