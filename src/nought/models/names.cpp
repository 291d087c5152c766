#include "nought/models/names.h"

#include <charconv>
#include <string_view>

namespace nought {

namespace {

bool is_roberta(const std::string& family) { return family == "roberta" || family == "xlm-roberta"; }

}  // namespace

WeightNames WeightNames::of(const ModelConfig& config) {
  WeightNames names;
  names.family_ = config.family;
  names.norm_placement_ = config.norm_placement;
  names.has_q_latent_ = config.latent && config.latent->q_rank > 0;
  names.head = "lm_head";
  if (config.family == "gpt2") {
    names.token_embedding = "transformer.wte";
    names.position_embedding = "transformer.wpe";
    names.final_norm = "transformer.ln_f";
  } else if (config.family == "gpt_neox") {
    names.token_embedding = "gpt_neox.embed_in";
    names.final_norm = "gpt_neox.final_layer_norm";
    names.head = "embed_out";
  } else if (config.family == "opt") {
    names.token_embedding = "model.decoder.embed_tokens";
    names.position_embedding = "model.decoder.embed_positions";
    names.final_norm = "model.decoder.final_layer_norm";
    names.project_in = "model.decoder.project_in";
    names.project_out = "model.decoder.project_out";
  } else if (config.family == "modernbert") {
    names.token_embedding = "model.embeddings.tok_embeddings";
    names.embedding_norm = "model.embeddings.norm";
    names.final_norm = "model.final_norm";
    names.score = "classifier", names.score_layer = "head.dense", names.score_norm = "head.norm";
  } else if (config.family == "bert" || is_roberta(config.family)) {
    const std::string prefix = config.family == "bert" ? "bert.embeddings." : "roberta.embeddings.";
    names.token_embedding = prefix + "word_embeddings";
    names.position_embedding = prefix + "position_embeddings";
    names.token_types = prefix + "token_type_embeddings";
    names.embedding_norm = prefix + "LayerNorm";
    names.score = is_roberta(config.family) ? "classifier.out_proj" : "classifier";
    names.score_layer = is_roberta(config.family) ? "classifier.dense" : "bert.pooler.dense";
  } else {
    names.token_embedding = "model.embed_tokens";
    names.final_norm = config.family == "phi" ? "model.final_layernorm" : "model.norm";
    if (config.family == "lfm2") names.final_norm = "model.embedding_norm";
  }
  return names;
}

WeightNames::Layer WeightNames::layer(int64_t index) const {
  if (family_ == "gpt2") return gpt2_layer(index);
  if (family_ == "gpt_neox") return gpt_neox_layer(index);
  if (family_ == "opt") return opt_layer(index);
  if (family_ == "bert" || is_roberta(family_)) return bert_layer(index);
  if (family_ == "modernbert") return modernbert_layer(index);
  return llama_layer(index);
}

WeightNames::Layer WeightNames::gpt2_layer(int64_t index) const {
  const std::string prefix = fmt::format("transformer.h.{}.", index);
  Layer layer;
  layer.attention_norm = prefix + "ln_1";
  layer.qkv = {prefix + "attn.c_attn"};
  layer.attention_out = prefix + "attn.c_proj";
  layer.mlp_norm = prefix + "ln_2";
  layer.up = {prefix + "mlp.c_fc"};
  layer.down = prefix + "mlp.c_proj";
  return layer;
}

WeightNames::Layer WeightNames::gpt_neox_layer(int64_t index) const {
  const std::string prefix = fmt::format("gpt_neox.layers.{}.", index);
  Layer layer;
  layer.attention_norm = prefix + "input_layernorm";
  layer.qkv = {prefix + "attention.query_key_value"};
  layer.attention_out = prefix + "attention.dense";
  layer.mlp_norm = prefix + "post_attention_layernorm";
  layer.up = {prefix + "mlp.dense_h_to_4h"};
  layer.down = prefix + "mlp.dense_4h_to_h";
  return layer;
}

WeightNames::Layer WeightNames::opt_layer(int64_t index) const {
  const std::string prefix = fmt::format("model.decoder.layers.{}.", index), attention = prefix + "self_attn.";
  Layer layer;
  layer.attention_norm = layer.attention_post_norm = prefix + "self_attn_layer_norm";
  layer.qkv = {attention + "q_proj", attention + "k_proj", attention + "v_proj"};
  layer.attention_out = attention + "out_proj";
  layer.mlp_norm = layer.mlp_post_norm = prefix + "final_layer_norm";
  layer.up = {prefix + "fc1"};
  layer.down = prefix + "fc2";
  return layer;
}

WeightNames::Layer WeightNames::bert_layer(int64_t index) const {
  const std::string prefix = fmt::format("{}.encoder.layer.{}.", family_ == "bert" ? "bert" : "roberta", index);
  const std::string self = prefix + "attention.self.";
  Layer layer;
  layer.qkv = {self + "query", self + "key", self + "value"};
  layer.attention_out = prefix + "attention.output.dense";
  layer.attention_post_norm = prefix + "attention.output.LayerNorm";
  layer.up = {prefix + "intermediate.dense"};
  layer.down = prefix + "output.dense";
  layer.mlp_post_norm = prefix + "output.LayerNorm";
  return layer;
}

WeightNames::Layer WeightNames::modernbert_layer(int64_t index) const {
  const std::string prefix = fmt::format("model.layers.{}.", index);
  Layer layer;
  layer.attention_norm = prefix + "attn_norm";
  layer.qkv = {prefix + "attn.Wqkv"};
  layer.attention_out = prefix + "attn.Wo";
  layer.mlp_norm = prefix + "mlp_norm";
  layer.up = {prefix + "mlp.Wi"};
  layer.down = prefix + "mlp.Wo";
  return layer;
}

WeightNames::Layer WeightNames::llama_layer(int64_t index) const {
  const std::string prefix = fmt::format("model.layers.{}.", index);
  const std::string attention = prefix + "self_attn.",
                    mlp = prefix + (family_ == "llama4_text" ? "feed_forward." : "mlp.");
  Layer layer;
  layer.attention_norm = prefix + "input_layernorm";
  layer.mlp_norm = prefix + "post_attention_layernorm";
  if (norm_placement_ != NormPlacement::pre) {
    layer.attention_post_norm = prefix + "post_attention_layernorm";
    layer.mlp_norm = prefix + "pre_feedforward_layernorm";
    layer.mlp_post_norm = prefix + "post_feedforward_layernorm";
  }
  layer.qkv = {attention + "q_proj", attention + "k_proj", attention + "v_proj"};
  layer.q_norm = attention + "q_norm";
  layer.k_norm = attention + "k_norm";
  layer.attention_out = attention + "o_proj";
  layer.up = {mlp + "gate_proj", mlp + "up_proj"};
  layer.down = mlp + "down_proj";
  layer.sinks = attention + "sinks";
  layer.q_down = attention + "q_a_proj";
  layer.q_latent_norm = attention + "q_a_layernorm";
  layer.q_up = attention + (has_q_latent_ ? "q_b_proj" : "q_proj");
  layer.kv_down = attention + "kv_a_proj_with_mqa";
  layer.kv_latent_norm = attention + "kv_a_layernorm";
  layer.kv_up = attention + "kv_b_proj";
  add_experts(layer, prefix);
  if (family_ == "phi3") layer.qkv = {attention + "qkv_proj"};
  if (family_ == "phi3" || family_ == "glm4") layer.up = {mlp + "gate_up_proj"};
  if (family_ == "glm4") {  // whose post_attention_layernorm stands before the MLP
    layer.attention_post_norm = prefix + "post_self_attn_layernorm";
    layer.mlp_norm = prefix + "post_attention_layernorm";
    layer.mlp_post_norm = prefix + "post_mlp_layernorm";
  }
  const std::string delta = prefix + "linear_attn.";
  const bool grouped = family_ == "qwen3_next";
  layer.delta_qkv = delta + (grouped ? "in_proj_qkvz" : "in_proj_qkv");
  layer.delta_z = delta + "in_proj_z";
  layer.delta_ba = {delta + "in_proj_b", delta + "in_proj_a"};
  if (grouped) layer.delta_ba = {delta + "in_proj_ba"};
  layer.delta_conv = delta + "conv1d";
  layer.delta_norm = delta + "norm";
  layer.delta_a_log = delta + "A_log";
  layer.delta_dt_bias = delta + "dt_bias";
  layer.delta_out = delta + "out_proj";
  if (family_ == "lfm2") {
    layer.attention_norm = prefix + "operator_norm";
    layer.mlp_norm = prefix + "ffn_norm";
    layer.q_norm = attention + "q_layernorm";
    layer.k_norm = attention + "k_layernorm";
    layer.attention_out = attention + "out_proj";
    layer.conv_in = prefix + "conv.in_proj";
    layer.conv = prefix + "conv.conv";
    layer.conv_out = prefix + "conv.out_proj";
    layer.up = {prefix + "feed_forward.w1", prefix + "feed_forward.w3"};
    layer.down = prefix + "feed_forward.w2";
  }
  if (family_ == "starcoder2") {
    layer.up = {mlp + "c_fc"};
    layer.down = mlp + "c_proj";
  }
  if (family_ == "phi") {
    layer.attention_out = attention + "dense";
    layer.up = {mlp + "fc1"};
    layer.down = mlp + "fc2";
  }
  return layer;
}

void WeightNames::add_experts(Layer& layer, const std::string& prefix) const {
  const bool mixtral = family_ == "mixtral" || family_ == "minimax_m2";
  const bool llama4 = family_ == "llama4_text";
  const std::string mlp = prefix + (mixtral ? "block_sparse_moe." : llama4 ? "feed_forward." : "mlp.");
  layer.router = mlp + (family_ == "gpt_oss" || llama4 ? "router" : "gate");
  layer.choice_bias = mlp + (mixtral                     ? "e_score_correction_bias"
                             : family_ == "ernie4_5_moe" ? "moe_statics.e_score_correction_bias"
                                                         : "gate.e_score_correction_bias");
  layer.experts = mlp + "experts";
  layer.expert_gate = mixtral ? "w1" : "gate_proj";
  layer.expert_up = mixtral ? "w3" : "up_proj";
  layer.expert_down = mixtral ? "w2" : "down_proj";
  const bool one = llama4 || family_ == "qwen2_moe" || family_.starts_with("qwen3");
  layer.shared_expert = mlp + (one ? "shared_expert." : "shared_experts.");
  layer.shared_gate = mlp + "shared_expert_gate";
}

std::vector<std::string> alternative_names(const std::string& name) {
  std::vector<std::string> names;
  for (const std::string_view prefix : {"transformer.", "model.", "bert.", "roberta."})
    if (name.starts_with(prefix)) names.push_back(name.substr(prefix.size()));
  for (const auto& [now, then] :
       {std::pair{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}})
    if (name.ends_with(now))
      for (const std::string& each : {name, names.empty() ? name : names.front()})
        names.push_back(each.substr(0, each.size() - std::string_view(now).size()) + then);
  return names;
}

std::optional<JoinedExpert> joined_expert(const std::string& name) {
  constexpr std::string_view kExperts = ".experts.";
  const size_t at = name.find(kExperts);
  if (at == std::string::npos) return std::nullopt;
  const size_t number = at + kExperts.size();
  JoinedExpert part{.tensor = name.substr(0, number)};
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + number, end, part.expert);
  if (error != std::errc()) return std::nullopt;
  const std::string_view kind(rest, end);
  part.matrix = kind == ".up_proj.weight";
  part.matrices = kind == ".down_proj.weight" ? 1 : 2;
  if (part.matrices == 2 && part.matrix == 0 && kind != ".gate_proj.weight") return std::nullopt;
  part.tensor += part.matrices == 2 ? "gate_up_proj" : "down_proj";
  return part;
}

bool is_buffer_name(const std::string& name) {
  // Scales of activations and of the cache, which are not rounded here.
  for (const char* scale :
       {".input_scale", ".input_global_scale", ".input_zero_point", ".output_scale", ".k_scale", ".v_scale"})
    if (name.ends_with(scale)) return true;
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name.ends_with(".attention.bias") ||
         name.ends_with(".attention.masked_bias") || name.ends_with(".rotary_emb.inv_freq") ||
         name.ends_with("embeddings.position_ids");
}

}  // namespace nought
