// What the metadata of each architecture mean in a config.json.
#include <algorithm>
#include <cmath>

#include "nought/models/gguf_reader.h"

namespace nought {

namespace {

/// The rotated part of a head.
void read_partial(MetadataReader& reader, const char* to) {
  const auto head_dim = reader.json["head_dim"].get<int64_t>();
  const int64_t rotated = reader.count("rope.dimension_count").value_or(head_dim);
  if (rotated != head_dim && head_dim > 0)
    reader.json[to] = static_cast<double>(rotated) / static_cast<double>(head_dim);
}

/// norm_topk_prob: the file's own word; else what llama.cpp takes for granted of the architecture, in a file that its
/// converter wrote (it writes general.type); else transformers' default.
void read_expert_weights(MetadataReader& reader, bool granted) {
  const std::optional<bool> said = reader.file.boolean(reader.key("expert_weights_norm"));
  reader.json["norm_topk_prob"] = said ? *said : granted && reader.file.text("general.type") != nullptr;
}

/// How many experts there are, by the config's name for that, and how many a token takes.
void read_expert_counts(MetadataReader& reader, const char* to) {
  reader.json[to] = reader.needed("expert_count");
  reader.json["num_experts_per_tok"] = reader.needed("expert_used_count");
}

void read_wide_experts(MetadataReader& reader) {
  read_expert_counts(reader, "num_experts");
  reader.json["moe_intermediate_size"] = reader.needed("expert_feed_forward_length");
}

void read_experts(MetadataReader& reader, bool granted) {
  read_wide_experts(reader);
  read_expert_weights(reader, granted);
}

void read_attention_bias(MetadataReader& reader) {
  reader.json["attention_bias"] = reader.has_tensor("blk.0.attn_q.bias");
}

void read_biases(MetadataReader& reader) {
  read_attention_bias(reader);
  reader.json["mlp_bias"] = reader.has_tensor("blk.0.ffn_down.bias");
}

void read_llama_family(MetadataReader& reader) {
  read_biases(reader);
  if (!reader.count("expert_count").value_or(0)) return;
  reader.json["model_type"] = "mixtral";
  reader.json.erase("attention_bias"), reader.json.erase("mlp_bias");
  read_expert_counts(reader, "num_local_experts");
  reader.copy("intermediate_size", "expert_feed_forward_length");
}

void read_qwen2_moe(MetadataReader& reader) {
  read_experts(reader, false);
  reader.copy("shared_expert_intermediate_size", "expert_shared_feed_forward_length");
}

void read_qwen3_moe(MetadataReader& reader) { read_experts(reader, true); }

/// llama.cpp scales the scores of the 27B models by the width of their layers.
void read_gemma_scale(MetadataReader& reader, int64_t layers_of_27b) {
  const auto hidden = reader.json["hidden_size"].get<int64_t>(),
             heads = reader.json["num_attention_heads"].get<int64_t>();
  const bool is_27b = reader.json["num_hidden_layers"] == layers_of_27b;
  reader.json["query_pre_attn_scalar"] = is_27b ? hidden / heads : reader.json["head_dim"].get<int64_t>();
}

void read_gemma2(MetadataReader& reader) {
  read_gemma_scale(reader, 46);
  reader.copy("sliding_window", "attention.sliding_window");
  reader.copy_number("attn_logit_softcapping", "attn_logit_softcapping");
  reader.copy_number("final_logit_softcapping", "final_logit_softcapping");
}

void read_gemma3(MetadataReader& reader) {
  read_gemma_scale(reader, 62);
  reader.copy("sliding_window", "attention.sliding_window");
  reader.copy("sliding_window_pattern", "attention.sliding_window_pattern");
  reader.copy_number("rope_local_base_freq", "rope.freq_base_swa");
  reader.copy_number("final_logit_softcapping", "final_logit_softcapping");
}

void read_phi3(MetadataReader& reader) {
  read_partial(reader, "partial_rotary_factor");
  reader.copy("sliding_window", "attention.sliding_window");
  reader.json.erase("head_dim");
}

void read_gpt2(MetadataReader& reader) {
  Json& json = reader.json;
  json = {{"n_embd", json["hidden_size"]},
          {"n_layer", json["num_hidden_layers"]},
          {"n_head", json["num_attention_heads"]},
          {"n_positions", json["max_position_embeddings"]},
          {"n_inner", json["intermediate_size"]},
          {"vocab_size", json["vocab_size"]},
          {"tie_word_embeddings", json["tie_word_embeddings"]},
          {"bos_token_id", json.value("bos_token_id", Json())},
          {"eos_token_id", json.value("eos_token_id", Json())}};
  reader.copy_number("layer_norm_epsilon", "attention.layer_norm_epsilon");
}

void read_gpt_neox(MetadataReader& reader) {
  Json& json = reader.json;
  reader.copy_number("layer_norm_eps", "attention.layer_norm_epsilon");
  json["use_parallel_residual"] = reader.file.boolean(reader.key("use_parallel_residual")).value_or(true);
  json["rotary_emb_base"] = json["rope_theta"];
  json["rotary_pct"] = 1.0;
  read_partial(reader, "rotary_pct");
  for (const char* each : {"rope_theta", "head_dim", "num_key_value_heads"}) json.erase(each);
}

// --- newer ones ---

/// How many layers there are. Each has a tensor, so that a file of no size has few.
int64_t layers_of(const MetadataReader& reader) {
  const auto layers = reader.json["num_hidden_layers"].get<int64_t>();
  if (layers > std::ssize(reader.file.entries()))
    reader.refuse("{} is {}, the file has {} tensors", reader.key("block_count"), layers, reader.file.entries().size());
  return layers;
}

/// layer_types: every n-th layer sees everything, or what an array says.
void read_layer_types(MetadataReader& reader, int64_t period, const char* windowed = "sliding_attention") {
  const int64_t layers = layers_of(reader);
  std::vector<int64_t> pattern = reader.file.integers(reader.key("attention.sliding_window_pattern"));
  if (pattern.size() == 1) period = pattern.front();
  if (period <= 0) reader.refuse("{} is {}", reader.key("attention.sliding_window_pattern"), period);
  Json types = Json::array();
  for (int64_t i = 0; i < layers; ++i) {
    const bool listed = std::ssize(pattern) > 1 && i < std::ssize(pattern);
    const bool slides = listed ? pattern[static_cast<size_t>(i)] != 0 : (i + 1) % period != 0;
    types.push_back(slides ? windowed : "full_attention");
  }
  reader.json["layer_types"] = types;
}

void read_window(MetadataReader& reader, int64_t period) {
  reader.copy("sliding_window", "attention.sliding_window");
  read_layer_types(reader, period);
}

void read_olmo2(MetadataReader& reader) {
  if (reader.count("attention.sliding_window").value_or(0) == 0) return;
  reader.json["model_type"] = "olmo3";
  read_window(reader, 4);
}

void read_olmoe(MetadataReader& reader) {
  read_expert_counts(reader, "num_experts");
  read_expert_weights(reader, false);
}

void read_granite(MetadataReader& reader) {
  read_biases(reader);
  reader.copy_number("embedding_multiplier", "embedding_scale");
  reader.copy_number("residual_multiplier", "residual_scale");
  reader.copy_number("logits_scaling", "logit_scale");
  const double head = reader.json["head_dim"].get<double>();
  reader.json["attention_multiplier"] = reader.number("attention.scale").value_or(1 / std::sqrt(head));
}

void read_seed_oss(MetadataReader& reader) {
  read_biases(reader);
  reader.json["attention_out_bias"] = reader.has_tensor("blk.0.attn_output.bias");
}

void read_exaone4(MetadataReader& reader) {
  reader.json["sliding_window"] = nullptr;
  if (reader.count("attention.sliding_window").value_or(0) > 0) read_window(reader, 4);
}

void read_smollm3(MetadataReader& reader) {
  read_biases(reader);
  reader.json["no_rope_layer_interval"] = 4;
}

void read_minimax_m2(MetadataReader& reader) {
  read_expert_counts(reader, "num_local_experts");
  reader.json["intermediate_size"] = reader.needed("expert_feed_forward_length");
  reader.copy("rotary_dim", "rope.dimension_count");
}

void read_ernie4_5(MetadataReader& reader) { reader.json["use_bias"] = reader.has_tensor("blk.0.attn_q.bias"); }

void read_ernie4_5_moe(MetadataReader& reader) {
  const int64_t width = reader.needed("expert_feed_forward_length");
  reader.json["moe_num_experts"] = reader.needed("expert_count");
  reader.json["moe_k"] = reader.needed("expert_used_count");
  reader.json["moe_intermediate_size"] = width;
  const GgufEntry* shared =
      reader.file.find(fmt::format("blk.{}.ffn_up_shexp.weight", reader.json["num_hidden_layers"].get<int64_t>() - 1));
  reader.json["moe_num_shared_experts"] = shared == nullptr || width <= 0 ? 0 : shared->shape[0] / width;
  reader.json["moe_layer_start_index"] = reader.count("leading_dense_block_count").value_or(0);
  reader.json["moe_layer_interval"] = reader.count("interleave_moe_layer_step").value_or(1);
}

void read_glm4(MetadataReader& reader) {
  read_partial(reader, "partial_rotary_factor");
  read_attention_bias(reader);
}

/// Experts as deepseek_v3 chooses them.
void read_routing(MetadataReader& reader) {
  Json& json = reader.json;
  read_expert_counts(reader, "n_routed_experts");
  json["moe_intermediate_size"] = reader.needed("expert_feed_forward_length");
  json["n_shared_experts"] = reader.count("expert_shared_count").value_or(0);
  json["first_k_dense_replace"] = reader.count("leading_dense_block_count").value_or(0);
  json["n_group"] = reader.count("expert_group_count").value_or(1);
  json["topk_group"] = reader.count("expert_group_used_count").value_or(1);
  json["routed_scaling_factor"] = reader.number("expert_weights_scale").value_or(1);
  json["norm_topk_prob"] = reader.file.boolean(reader.key("expert_weights_norm")).value_or(false);
}

void read_glm4_moe(MetadataReader& reader) {
  read_glm4(reader);
  read_routing(reader);
  reader.json["use_qk_norm"] = reader.has_tensor("blk.0.attn_q_norm.weight");
}

void read_deepseek2(MetadataReader& reader) {
  Json& json = reader.json;
  if (!reader.has_tensor("blk.0.attn_k_b.weight"))
    reader.refuse("has no blk.0.attn_k_b.weight: it was made by an older program, with keys and values in one tensor");
  constexpr int64_t kSigmoid = 2;
  const bool sigmoid = reader.count("expert_gating_func").value_or(1) == kSigmoid;
  json["model_type"] = sigmoid ? "deepseek_v3" : "deepseek_v2";
  read_routing(reader);
  const int64_t rotated = reader.needed("rope.dimension_count"),
                rank = reader.count("attention.q_lora_rank").value_or(0);
  json["q_lora_rank"] = rank == 0 ? Json() : Json(rank);
  json["kv_lora_rank"] = reader.needed("attention.kv_lora_rank");
  json["qk_rope_head_dim"] = rotated;
  json["qk_nope_head_dim"] = reader.needed("attention.key_length_mla") - rotated;
  json["v_head_dim"] = reader.needed("attention.value_length_mla");
  json["num_key_value_heads"] = json["num_attention_heads"];
  json.erase("head_dim");
  if (!sigmoid) json["topk_method"] = json["n_group"] == 1 ? "greedy" : "group_limited_greedy";
  if (const auto all = reader.file.number(reader.key("rope.scaling.yarn_log_multiplier"));
      all && json.contains("rope_scaling")) {
    const double mscale = std::round(*all * 1e7) / 1e6;  // the file has a tenth of it
    json["rope_scaling"]["mscale"] = json["rope_scaling"]["mscale_all_dim"] = mscale;
  }
}

void read_cohere2(MetadataReader& reader) {
  reader.copy_number("layer_norm_eps", "attention.layer_norm_epsilon");
  reader.copy_number("logit_scale", "logit_scale");
  read_window(reader, 4);
}

void read_starcoder2(MetadataReader& reader) {
  reader.copy_number("norm_epsilon", "attention.layer_norm_epsilon");
  reader.copy("sliding_window", "attention.sliding_window");
}

void read_phi2(MetadataReader& reader) {
  reader.copy_number("layer_norm_eps", "attention.layer_norm_epsilon");
  read_partial(reader, "partial_rotary_factor");
}

void read_mistral3(MetadataReader& reader) {
  Json& json = reader.json;
  reader.copy("sliding_window", "attention.sliding_window");
  if (!json.contains("rope_scaling")) json["rope_scaling"] = {{"rope_type", "default"}};
  Json& scaling = json["rope_scaling"];
  if (const auto all = reader.number("rope.scaling.yarn_log_multiplier"))
    scaling["mscale"] = 1, scaling["mscale_all_dim"] = *all;
  if (const auto beta = reader.number("attention.temperature_scale")) scaling["llama_4_scaling_beta"] = *beta;
}

void read_llama4(MetadataReader& reader) {
  Json& json = reader.json;
  json["intermediate_size_mlp"] = json["intermediate_size"];
  json["intermediate_size"] = reader.needed("expert_feed_forward_length");
  read_expert_counts(reader, "num_local_experts");
  json["interleave_moe_layer_step"] = reader.needed("interleave_moe_layer_step");
  read_attention_bias(reader);
  read_layer_types(reader, 4, "chunked_attention");
}

void read_lfm2(MetadataReader& reader) {
  reader.copy_number("norm_eps", "attention.layer_norm_rms_epsilon");
  reader.json["block_auto_adjust_ff_dim"] = false;
  reader.copy("conv_L_cache", "shortconv.l_cache");
  Json types = Json::array();
  for (const int64_t heads : reader.file.integers(reader.key("attention.head_count_kv")))
    types.push_back(heads == 0 ? "conv" : "full_attention");
  if (std::ssize(types) == reader.json["num_hidden_layers"].get<int64_t>()) reader.json["layer_types"] = types;
}

/// The gated delta rule in most layers.
void read_delta(MetadataReader& reader) {
  Json& json = reader.json;
  read_partial(reader, "partial_rotary_factor");
  const int64_t heads = reader.needed("ssm.time_step_rank");
  if (heads <= 0) reader.refuse("{} is {}", reader.key("ssm.time_step_rank"), heads);
  json["linear_conv_kernel_dim"] = reader.needed("ssm.conv_kernel");
  json["linear_key_head_dim"] = reader.needed("ssm.state_size");
  json["linear_num_key_heads"] = reader.needed("ssm.group_count");
  json["linear_num_value_heads"] = heads;
  json["linear_value_head_dim"] = reader.needed("ssm.inner_size") / heads;
  json["attention_bias"] = false;
  const int64_t layers = layers_of(reader);
  const std::vector<int64_t> recurrent = reader.file.integers(reader.key("attention.recurrent_layers"));
  const int64_t interval = reader.count("full_attention_interval").value_or(4);
  if (interval <= 0) reader.refuse("{} is {}", reader.key("full_attention_interval"), interval);
  json["layer_types"] = Json::array();
  for (int64_t i = 0; i < layers; ++i) {
    const bool linear = i < std::ssize(recurrent) ? recurrent[static_cast<size_t>(i)] != 0 : (i + 1) % interval != 0;
    json["layer_types"].push_back(linear ? "linear_attention" : "full_attention");
  }
}

void read_qwen35_moe(MetadataReader& reader) {
  read_wide_experts(reader);
  reader.copy("shared_expert_intermediate_size", "expert_shared_feed_forward_length");
  read_delta(reader);
}

void read_qwen3_next(MetadataReader& reader) {
  if (reader.has_tensor("blk.0.ssm_in.weight"))
    reader.refuse("has blk.0.ssm_in.weight: it was made by an older program, with all projections in one tensor");
  read_qwen35_moe(reader);
  reader.json["norm_topk_prob"] = true;
}

void read_gpt_oss(MetadataReader& reader) {
  reader.json["intermediate_size"] = reader.needed("expert_feed_forward_length");
  read_expert_counts(reader, "num_local_experts");
  read_window(reader, 2);
  if (reader.json.contains("rope_scaling") && !reader.json["rope_scaling"].contains("truncate"))
    reader.json["rope_scaling"]["truncate"] = false;  // as OpenAI's models have it
}

constexpr KnownArchitecture kReadArchitectures[] = {{"llama", "llama", read_llama_family},
                                                    {"qwen2", "qwen2"},
                                                    {"qwen2moe", "qwen2_moe", read_qwen2_moe},
                                                    {"qwen3", "qwen3", read_attention_bias},
                                                    {"qwen3moe", "qwen3_moe", read_qwen3_moe},
                                                    {"gemma", "gemma"},
                                                    {"gemma2", "gemma2", read_gemma2},
                                                    {"gemma3", "gemma3_text", read_gemma3},
                                                    {"phi3", "phi3", read_phi3},
                                                    {"olmo2", "olmo2", read_olmo2},
                                                    {"gpt2", "gpt2", read_gpt2},
                                                    {"gptneox", "gpt_neox", read_gpt_neox},
                                                    {"cohere2", "cohere2", read_cohere2},
                                                    {"deepseek2", "deepseek_v3", read_deepseek2},
                                                    {"ernie4_5", "ernie4_5", read_ernie4_5},
                                                    {"ernie4_5-moe", "ernie4_5_moe", read_ernie4_5_moe},
                                                    {"exaone4", "exaone4", read_exaone4},
                                                    {"glm4", "glm4", read_glm4},
                                                    {"glm4moe", "glm4_moe", read_glm4_moe},
                                                    {"gpt-oss", "gpt_oss", read_gpt_oss},
                                                    {"granite", "granite", read_granite},
                                                    {"lfm2", "lfm2", read_lfm2},
                                                    {"llama4", "llama4_text", read_llama4},
                                                    {"minimax-m2", "minimax_m2", read_minimax_m2},
                                                    {"mistral3", "ministral3", read_mistral3},
                                                    {"olmoe", "olmoe", read_olmoe},
                                                    {"phi2", "phi", read_phi2},
                                                    {"qwen35", "qwen3_5_text", read_delta},
                                                    {"qwen35moe", "qwen3_5_moe_text", read_qwen35_moe},
                                                    {"qwen3next", "qwen3_next", read_qwen3_next},
                                                    {"seed_oss", "seed_oss", read_seed_oss},
                                                    {"smollm3", "smollm3", read_smollm3},
                                                    {"starcoder2", "starcoder2", read_starcoder2}};

}  // namespace

std::span<const KnownArchitecture> read_architectures() { return kReadArchitectures; }

}  // namespace nought
