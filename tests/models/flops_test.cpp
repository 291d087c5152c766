#include "nought/models/flops.h"

#include <numeric>

#include "support/golden.h"
#include "support/tiny_llama.h"
#include <gtest/gtest.h>

#include "nought/base/json.h"
#include "nought/models/decoder.h"
#include "nought/nn/freezing.h"

namespace nought::flops_test {
namespace {

TEST(Flops, are_six_per_multiplied_weight_and_the_scores_of_attention) {
  const ModelConfig config = test::tiny_llama();
  // Two blocks of q, k, v, o (16 x 16) and gate, up, down (16 x 24) with two norms of 16, the last norm, the head.
  const double multiplied = 2 * (4 * 16 * 16 + 3 * 16 * 24 + 2 * 16) + 16 + 256 * 16;
  const double attended = 2 * 16 * 10;  // layers, width, length
  EXPECT_EQ(training_flops_per_token(config, 10), 6 * multiplied + 6 * attended);
  EXPECT_EQ(training_flops_per_token(config, 10, /*causal=*/false), 6 * multiplied + 12 * attended);
}

TEST(Flops, a_tied_head_is_multiplied_as_an_untied_one_is) {
  ModelConfig tied = test::tiny_llama();
  tied.tie_word_embeddings = true;
  EXPECT_EQ(training_flops_per_token(tied, 10), training_flops_per_token(test::tiny_llama(), 10));
}

TEST(Flops, a_token_passes_only_the_experts_that_it_chose) {
  const auto with_top_k = [](int64_t top_k) {
    return training_flops_per_token(ModelConfig::from_json({{"model_type", "mixtral"},
                                                            {"vocab_size", 64},
                                                            {"hidden_size", 16},
                                                            {"intermediate_size", 24},
                                                            {"num_hidden_layers", 3},
                                                            {"num_attention_heads", 2},
                                                            {"num_key_value_heads", 2},
                                                            {"num_local_experts", 4},
                                                            {"num_experts_per_tok", top_k}}),
                                    10);
  };
  EXPECT_EQ(with_top_k(3) - with_top_k(1), 6.0 * 3 * 2 * (3 * 16 * 24)) << "two more experts in three layers";
}

TEST(Flops, those_of_the_units_are_those_of_the_model) {
  const auto sum = [](const ModelConfig& config) {
    const std::vector<double> flops = unit_flops_per_token(Decoder(config), 10);
    return std::accumulate(flops.begin(), flops.end(), 0.0);
  };
  ModelConfig config = test::tiny_llama();
  EXPECT_DOUBLE_EQ(sum(config), training_flops_per_token(config, 10));
  config.tie_word_embeddings = true;
  EXPECT_DOUBLE_EQ(sum(config), training_flops_per_token(config, 10));
  const std::vector<double> whole = unit_flops_per_token(Decoder(config), 10);
  EXPECT_EQ(whole.front(), 0);
  EXPECT_EQ(whole.back(), 6.0 * (16 + 256 * 16));
  config.sliding_windows[1] = 4;  // a token sees 4 - 4 * 4 / (2 * 10) others on average, and not 5
  EXPECT_DOUBLE_EQ(unit_flops_per_token(Decoder(config), 10)[2], whole[2] - 12 * 16 * (5 - 3.2));
}

TEST(Flops, of_the_delta_rule_count_for_each_layer_that_has_it) {
  const ModelConfig config = ModelConfig::from_folder(test::golden_folder("open/qwen3_5_text"));
  const double one = training_flops_per_token(config, 64);
  const double rule = 3 * config.delta->shape.flops_per_token();
  EXPECT_GT(rule, 0);
  EXPECT_DOUBLE_EQ(delta_flops_per_token(config), rule) << "one of two layers";
  const std::vector<double> units = unit_flops_per_token(Decoder(config), 64);
  EXPECT_NEAR(std::accumulate(units.begin(), units.end(), 0.0) / one, 1, 1e-12);
}

/// Two blocks of 6400 with norms, as above; every frozen weight saves 2, and below what is trained 2 more.
TEST(Flops, frozen_parameters_save_their_gradients_and_what_is_below_them) {
  Decoder decoder(test::tiny_llama());
  const auto saved = [&](const Freezing& freezing) {
    for (const auto& unit : decoder.units()) unit->choose_trained([](const Parameter&) { return true; });
    apply(freezing, decoder);
    return frozen_flops_per_token(decoder, 10);
  };
  const double block = 4 * 16 * 16 + 3 * 16 * 24 + 2 * 16, scores = 4 * 16 * 10, head = 256 * 16, norm = 16;
  EXPECT_EQ(saved({}), 0);
  EXPECT_EQ(saved({{"embed"}, {}}), 0) << "looking up costs nothing";
  EXPECT_EQ(saved({{"lm_head"}, {}}), 2 * head);
  EXPECT_EQ(saved({{"layers\\.0\\."}, {}}), 2 * block) << "its input gradients lead to the embedding";
  EXPECT_EQ(saved({{"embed", "layers\\.0\\."}, {}}), 4 * block + scores);
  EXPECT_EQ(saved({{"."}, {"lm_head"}}), 2 * (4 * block + scores) + 2 * norm);
}

/// What config.json says of released mixtures: the totals are those of transformers' models of these shapes.
TEST(Flops, released_mixtures_have_the_total_and_active_parameters_that_their_cards_name) {
  struct Released {
    const char* name;
    Json config;
    int64_t total, active;
  };
  const std::vector<Released> all{
      {"Mixtral 8x7B: 47B, 13B", {{"model_type", "mixtral"}}, 46702792704, 12879925248},
      {"Mistral 7B", {{"model_type", "mistral"}}, 7241732096, 7241732096},
      {"Llama 4 Scout without its images: 109B, 17B", {{"model_type", "llama4_text"}}, 107769861120, 17172894720},
      {"Qwen3-Next without its MTP layer: 80B, 3B", {{"model_type", "qwen3_next"}}, 79674391296, 3874929408},
      {"MiniMax-M2: 230B, 10B", {{"model_type", "minimax_m2"}}, 228689764864, 11030553088},
      {"gpt-oss 120b: 117B, 5.1B less the embedding", {{"model_type", "gpt_oss"}}, 116829156672, 5711982912},
      {"gpt-oss 20b: 21B, 3.6B less the embedding",
       {{"model_type", "gpt_oss"}, {"num_hidden_layers", 24}, {"num_local_experts", 32}},
       20914757184,
       4187440704},
      {"GLM-4.5 without its MTP layer: 355B, 32B",
       {{"model_type", "glm4_moe"},
        {"hidden_size", 5120},
        {"num_hidden_layers", 92},
        {"intermediate_size", 12288},
        {"moe_intermediate_size", 1536},
        {"num_attention_heads", 96},
        {"head_dim", 128},
        {"n_routed_experts", 160},
        {"first_k_dense_replace", 3},
        {"use_qk_norm", true},
        {"attention_bias", true}},
       352797829024,
       33632266144},
      {"Kimi-K2: 1T, 32B",
       {{"model_type", "kimi_k2"},
        {"vocab_size", 163840},
        {"hidden_size", 7168},
        {"intermediate_size", 18432},
        {"moe_intermediate_size", 2048},
        {"num_hidden_layers", 61},
        {"num_attention_heads", 64},
        {"num_key_value_heads", 64},
        {"n_shared_experts", 1},
        {"n_routed_experts", 384},
        {"num_experts_per_tok", 8},
        {"first_k_dense_replace", 1},
        {"n_group", 1},
        {"topk_group", 1},
        {"q_lora_rank", 1536},
        {"kv_lora_rank", 512},
        {"qk_rope_head_dim", 64},
        {"qk_nope_head_dim", 128},
        {"v_head_dim", 128},
        {"routed_scaling_factor", 2.827}},
       1026408232448,
       32861500928},
      {"Qwen3.5 397B-A17B without its images and its MTP layer",
       {{"model_type", "qwen3_5_moe_text"},
        {"hidden_size", 4096},
        {"num_hidden_layers", 60},
        {"num_attention_heads", 32},
        {"num_key_value_heads", 2},
        {"head_dim", 256},
        {"linear_num_key_heads", 16},
        {"linear_num_value_heads", 64},
        {"num_experts", 512},
        {"num_experts_per_tok", 10},
        {"moe_intermediate_size", 1024},
        {"shared_expert_intermediate_size", 1024}},
       396346350336,
       17349040896}};
  for (const Released& each : all) {
    const ModelConfig config = ModelConfig::from_json(each.config);
    EXPECT_EQ(config.parameter_count(), each.total) << each.name;
    EXPECT_EQ(config.parameter_count() - idle_parameters(config), each.active) << each.name;
  }
}

}  // namespace
}  // namespace nought::flops_test
