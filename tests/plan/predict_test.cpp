// Predictions of models that no machine here could hold, and the tables of the literature.
#include "nought/plan/predict.h"

#include "support/plan_report.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/models/flops.h"

namespace nought::predict_test {
namespace {

constexpr double kGB = 1e9;

ModelConfig llama_405b() {
  return ModelConfig::from_json({{"model_type", "llama"},
                                 {"vocab_size", 128256},
                                 {"hidden_size", 16384},
                                 {"intermediate_size", 53248},
                                 {"num_hidden_layers", 126},
                                 {"num_attention_heads", 128},
                                 {"num_key_value_heads", 8},
                                 {"max_position_embeddings", 131072}});
}

/// 7.5B parameters in GPT-2's shape: 12 L h^2 (1 + 13/(12h) + (V + s)/(12 L h)).
ModelConfig gpt_7_5b() {
  return ModelConfig::from_json({{"model_type", "gpt2"},
                                 {"vocab_size", 50257},
                                 {"n_embd", 4096},
                                 {"n_layer", 36},
                                 {"n_head", 32},
                                 {"n_positions", 1024}});
}

Layout bf16_on(int ranks, int64_t seq_length) {
  return {.ranks = ranks,
          .seq_length = seq_length,
          .recompute = Recompute::full,
          .sharding = {.dtype = DType::bf16, .gradient_dtype = DType::bf16}};
}

int64_t in(const std::array<int64_t, kNumCategories>& bytes, Category category) {
  return bytes[static_cast<size_t>(category)];
}

TEST(Predict, model_states_of_7_5b_on_64_ranks_are_those_of_the_zero_paper) {
  const double paper[] = {120, 31.4, 16.6, 1.9};
  for (const Prediction& each : test::predict_stages(gpt_7_5b(), bf16_on(64, 1024))) {
    const int stage = each.layout.zero_stage;
    const double scale = 7.5e9 / static_cast<double>(each.parameters);
    EXPECT_NEAR(scale, 1, 0.02);
    const int64_t states = in(each.steady, Category::parameters) + in(each.steady, Category::gradients) +
                           in(each.steady, Category::optimizer);
    EXPECT_NEAR(static_cast<double>(states) / kGB * scale, paper[stage], 0.05) << "stage " << stage;
  }
}

TEST(Predict, traffic_is_2_psi_and_at_stage_3_what_its_gathers_add) {
  for (const Prediction& each : test::predict_stages(gpt_7_5b(), bf16_on(64, 1024))) {
    const double psi = static_cast<double>(each.parameters), part = 63.0 / 64;
    const double sent = static_cast<double>(each.traffic.total_elements());
    const double factor = each.layout.zero_stage == 3 ? 3 : 2;
    // At stage 3 the tied head gathers the embedding once more in each direction.
    EXPECT_NEAR(sent / (psi * part), factor, each.layout.zero_stage == 3 ? 0.08 : 0.01)
        << "stage " << each.layout.zero_stage;
  }
}

/// arXiv 2205.05198, table 2, with attention that keeps no scores and without dropout: of each layer, in bytes,
/// sbh (8 + 24/t), what the norms know of each token, and what attention knows of each head.
TEST(Predict, activations_of_a_layer_are_the_formula_for_ranks_that_share_it) {
  const int64_t s = 256, b = 4, h = 256, a = 8;
  for (const int t : {1, 2, 4}) {
    const auto activations = [&](int64_t layers) {
      const ModelConfig config = ModelConfig::from_json({{"model_type", "gpt2"},
                                                         {"vocab_size", 512},
                                                         {"n_embd", h},
                                                         {"n_layer", layers},
                                                         {"n_head", a},
                                                         {"n_positions", s}});
      const Layout layout{.ranks = t,
                          .tensor_ranks = t,
                          .micro_batch = b,
                          .seq_length = s,
                          .sharding = {.dtype = DType::bf16, .gradient_dtype = DType::bf16}};
      return predict(config, layout).memory.peak[static_cast<size_t>(Category::activations)];
    };
    EXPECT_EQ(activations(24) - activations(16), 8 * (s * b * h * (8 + 24 / t) + s * b * (16 + 4 * a / t))) << t;
  }
}

TEST(Predict, a_405b_model_on_1024_ranks_needs_no_memory_of_its_own) {
  const Prediction prediction = predict(llama_405b(), bf16_on(1024, 8192).at_zero_stage(3));
  EXPECT_NEAR(static_cast<double>(prediction.parameters), 405.9e9, 0.1e9);
  const double states = 16.0 * static_cast<double>(prediction.parameters) / 1024;
  const int64_t steady = in(prediction.steady, Category::parameters) + in(prediction.steady, Category::gradients) +
                         in(prediction.steady, Category::optimizer);
  EXPECT_NEAR(static_cast<double>(steady) / states, 1, 0.001);
  // One checkpoint of [tokens, hidden] in bf16 per block, at least.
  EXPECT_GE(in(prediction.memory.peak, Category::activations), int64_t{126} * 8192 * 16384 * 2);
}

TEST(Predict, micro_batches_beyond_the_third_add_what_the_third_did) {
  Layout layout = bf16_on(8, 256).at_zero_stage(3);
  const auto with = [&](int64_t accumulation) {
    layout.accumulation = accumulation;
    return predict(gpt_7_5b(), layout);
  };
  const Prediction two = with(2), three = with(3), many = with(40);
  const auto on_the_line = [](double a, double b) { return b + 37 * (b - a); };
  EXPECT_DOUBLE_EQ(many.executed_flops, on_the_line(two.executed_flops, three.executed_flops));
  EXPECT_DOUBLE_EQ(
      static_cast<double>(many.traffic.total_bytes()),
      on_the_line(static_cast<double>(two.traffic.total_bytes()), static_cast<double>(three.traffic.total_bytes())));
  EXPECT_EQ(in(many.memory.peak, Category::activations), in(three.memory.peak, Category::activations));
  EXPECT_EQ(in(many.memory.peak, Category::gradients), in(three.memory.peak, Category::gradients));
}

TEST(Predict, executed_operations_are_the_models_and_a_third_more_with_recompute) {
  Layout layout = bf16_on(1, 1024);
  layout.recompute = Recompute::none;
  const ModelConfig config = gpt_7_5b();
  const double tokens = static_cast<double>(layout.tokens_per_step());
  const double model = training_flops_per_token(config, layout.seq_length) * tokens;
  const double plain = predict(config, layout).executed_flops;
  // Attention's backward multiplies five times, where the model's cost counts four.
  EXPECT_NEAR(plain / model, 1, 0.01);
  layout.recompute = Recompute::full;
  EXPECT_NEAR(predict(config, layout).executed_flops / plain, 4.0 / 3, 0.02);
}

TEST(Predict, selective_recompute_keeps_less_than_none_more_than_full_and_multiplies_nothing_twice) {
  // The paper has 34 bytes per token and layer (arXiv 2205.05198, without dropout's masks): two norms' results, 4, and
  // GELU's, 8.
  Layout layout = bf16_on(1, 1024);
  const ModelConfig config = gpt_7_5b();
  std::array<Prediction, 3> modes;
  for (const Recompute mode : {Recompute::none, Recompute::selective, Recompute::full}) {
    layout.recompute = mode;
    modes[static_cast<size_t>(mode)] = predict(config, layout);
  }
  const auto activations = [&](size_t mode) { return in(modes[mode].memory.peak, Category::activations); };
  const int64_t saved = 2 * (2 + 4) * 1024 * 4096 * 36;
  EXPECT_NEAR(static_cast<double>(activations(0) - activations(1)) / static_cast<double>(saved), 1, 0.05);
  EXPECT_LT(activations(2), activations(1) / 4);
  EXPECT_EQ(modes[1].executed_flops, modes[0].executed_flops);
}

}  // namespace
}  // namespace nought::predict_test
