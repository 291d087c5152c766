#include "support/small_models.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "nought/base/error.h"

namespace nought::test {
namespace {

/// What all families but gpt2 call alike.
Json sizes(const char* family, int64_t hidden, int heads, int kv_heads, int64_t intermediate, Json more) {
  more.update({{"model_type", family},
               {"hidden_size", hidden},
               {"num_attention_heads", heads},
               {"num_key_value_heads", kv_heads},
               {"intermediate_size", intermediate},
               {"max_position_embeddings", 64}});
  return more;
}

const std::map<std::string, Json>& models() {
  static const std::map<std::string, Json> all{
      {"grouped_heads", sizes("llama", 24, 4, 2, 40, {{"tie_word_embeddings", false}})},
      {"qk_norms", sizes("qwen3", 32, 8, 2, 48, {{"head_dim", 8}, {"tie_word_embeddings", true}})},
      {"biases", {{"model_type", "gpt2"}, {"n_embd", 32}, {"n_head", 8}, {"n_positions", 64}}},
      {"experts", sizes("mixtral", 24, 4, 2, 16, {{"num_local_experts", 4}, {"num_experts_per_tok", 2}})},
      {"shared_experts", sizes("qwen2_moe", 32, 8, 8, 48,
                               {{"num_experts", 8},
                                {"num_experts_per_tok", 2},
                                {"moe_intermediate_size", 16},
                                {"shared_expert_intermediate_size", 24},
                                {"norm_topk_prob", true},
                                {"output_router_logits", true},
                                {"router_aux_loss_coef", 0.01},
                                {"tie_word_embeddings", false}})},
      {"latent", sizes("deepseek_v3", 32, 4, 4, 48,
                       {{"moe_intermediate_size", 10},
                        {"q_lora_rank", 12},
                        {"kv_lora_rank", 10},
                        {"qk_nope_head_dim", 6},
                        {"qk_rope_head_dim", 4},
                        {"v_head_dim", 5},
                        {"n_routed_experts", 4},
                        {"n_shared_experts", 1},
                        {"num_experts_per_tok", 2},
                        {"n_group", 1},
                        {"topk_group", 1},
                        {"first_k_dense_replace", 1}})},
      {"sinks", sizes("gpt_oss", 32, 4, 2, 10,
                      {{"head_dim", 12}, {"num_local_experts", 4}, {"num_experts_per_tok", 2}, {"sliding_window", 5}})},
      {"sliding_windows", sizes("mistral", 24, 4, 2, 40, {{"sliding_window", 5}})},
      {"post_norms", sizes("gemma2", 24, 4, 2, 48,
                           {{"head_dim", 8},
                            {"query_pre_attn_scalar", 8},
                            {"sliding_window", 64},
                            {"final_logit_softcapping", 3.0},
                            {"attn_logit_softcapping", 20.0}})},
      {"head_norms", sizes("olmo2", 32, 4, 1, 42, Json::object())}};
  return all;
}

}  // namespace

ModelConfig small_model(const std::string& structure, int layers, const std::map<std::string, int64_t>& sizes) {
  const auto found = models().find(structure);
  require(found != models().end(), "no small model has the structure {}", structure);
  Json json = found->second;
  json[structure == "biases" ? "n_layer" : "num_hidden_layers"] = layers;
  json["vocab_size"] = kSmallVocabulary;
  json["initializer_range"] = 0.1;
  for (const auto& [key, size] : sizes) json[key] = size;
  if (structure == "shared_experts") {
    json["mlp_only_layers"] = Json::array();
    for (int layer = 0; layer < layers; layer += 2) json["mlp_only_layers"].push_back(layer);
  }
  return ModelConfig::from_json(json);
}

std::vector<const char*> small_models() {
  std::vector<const char*> all;
  for (const auto& [structure, json] : models()) all.push_back(structure.c_str());
  return all;
}

int64_t turn_of_structure(const std::string& structure) {
  const std::vector<const char*> all = small_models();
  return std::find(all.begin(), all.end(), structure) - all.begin();
}

std::string name_of_structure(const ::testing::TestParamInfo<const char*>& info) { return info.param; }

}  // namespace nought::test
