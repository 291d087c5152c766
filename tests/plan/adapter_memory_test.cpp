// What an adapter's run keeps: the frozen model, and of the adapter what ZeRO keeps of a whole model, by the formula of
// the stage.
#include "support/agreement.h"
#include "support/size.h"
#include <gtest/gtest.h>

#include "nought/models/adapter_modules.h"
#include "nought/plan/largest_rank.h"

namespace nought::adapter_memory_test {
namespace {

/// Every tensor has a multiple of what each rank's share of a segment is rounded to.
ModelConfig even_llama() {
  return ModelConfig::from_json({{"model_type", "llama"},
                                 {"vocab_size", 256},
                                 {"hidden_size", 64},
                                 {"intermediate_size", 128},
                                 {"num_hidden_layers", 2},
                                 {"num_attention_heads", 4},
                                 {"num_key_value_heads", 2},
                                 {"max_position_embeddings", 64},
                                 {"tie_word_embeddings", false}});
}

NOUGHT_SIZE(medium);
TEST(AdapterMemory, is_the_frozen_base_and_what_the_stage_keeps_of_the_adapter) {
  constexpr int64_t kRanks = 2, kGradient = 2;
  for (const bool dora : {false, true})
    for (const int stage : {0, 1, 2, 3}) {
      const ModelConfig base = even_llama();
      const ModelConfig config = with_adapter(
          base, resolve_adapter({.r = 16, .dora = dora, .targets = {.pattern = "all-linear"}}, base, "RUN.json"));
      const Layout layout{.ranks = kRanks,
                          .zero_stage = stage,
                          .micro_batch = 1,
                          .seq_length = 64,
                          .sharding = {.dtype = DType::bf16, .gradient_dtype = DType::bf16},
                          .wire = Wire::threads};
      SCOPED_TRACE(layout.str());
      const Prediction predicted = predict(config, layout);
      const int64_t of_base = predicted.frozen, of_adapter = predicted.parameters - predicted.frozen;
      const auto shared = [&](int64_t bytes, int from) { return stage >= from ? bytes / kRanks : bytes; };
      const auto steady = [&](Category category) { return predicted.steady[static_cast<size_t>(category)]; };
      EXPECT_EQ(steady(Category::parameters), shared(2 * of_base + 2 * of_adapter, 3));
      EXPECT_EQ(steady(Category::optimizer), shared(12 * of_adapter, 1)) << "a master and two states of f32";
      EXPECT_LE(steady(Category::gradients), shared(kGradient * of_adapter, 2));
      test::expect_agreement(predicted, test::measure(config, layout));
    }
}

NOUGHT_SIZE(medium);
TEST(AdapterMemory, of_a_base_in_codes_is_4_127_bits_a_weight) {
  constexpr int64_t kRanks = 2;
  const ModelConfig base = even_llama();
  const ModelConfig config =
      with_adapter(base, resolve_adapter({.r = 8, .targets = {.pattern = "all-linear"}}, base, "RUN.json"));
  const auto layout_with = [](int stage, std::optional<WeightCodes> codes) {
    return Layout{.ranks = kRanks,
                  .zero_stage = stage,
                  .micro_batch = 1,
                  .seq_length = 64,
                  .freezing = {.freeze = {}, .trainable = {}, .codes = codes},
                  .sharding = {.dtype = DType::bf16, .gradient_dtype = DType::bf16},
                  .wire = Wire::threads};
  };
  const auto parameters = [&](const Layout& layout) {
    return predict(config, layout).steady[static_cast<size_t>(Category::parameters)];
  };
  // Seven matrices of each layer; the scales of each have an offset and a scale for 256 of them.
  const int64_t linear = 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 128), matrices = 2 * 7;
  for (const int stage : {0, 1, 2, 3})
    for (const bool nested : {false, true}) {
      const Layout layout = layout_with(stage, WeightCodes{CodeKind::nf4, nested});
      SCOPED_TRACE(fmt::format("{}, {}", layout.str(), nested ? "double quantization" : "fp32 scales"));
      const int64_t codes = linear / 2 + linear / 64 * (nested ? 1 : 4) + (nested ? 8 * matrices : 0);
      const int64_t dense = parameters(layout_with(stage, {}));
      const int64_t saved = dense - parameters(layout), whole = 2 * linear - codes;
      // Codes, scales and the scales of scales of each layer are rounded up to whole shards.
      const int64_t rounding = 2 * kRanks * (1024 + 32 * 4 + 32 * 4);
      EXPECT_NEAR(static_cast<double>(saved), static_cast<double>(stage == 3 ? whole / kRanks : whole),
                  static_cast<double>(rounding));
      test::expect_agreement(predict(config, layout), test::measure(config, layout));
    }
}

TEST(AdapterMemory, of_a_large_matrix_has_the_bits_of_its_format) {
  Json json = even_llama().to_hf_json(DType::bf16);
  json["hidden_size"] = 1024, json["intermediate_size"] = 4096, json["head_dim"] = 256;
  const ModelConfig base = ModelConfig::from_json(json);
  const ModelConfig config =
      with_adapter(base, resolve_adapter({.r = 1, .targets = {.pattern = "all-linear"}}, base, "RUN.json"));
  const auto parameters = [&](std::optional<WeightCodes> codes) {
    const Layout layout{.micro_batch = 1,
                        .seq_length = 64,
                        .freezing = {.freeze = {}, .trainable = {}, .codes = codes},
                        .sharding = {.dtype = DType::bf16, .gradient_dtype = DType::bf16}};
    return static_cast<double>(predict(config, layout).steady[static_cast<size_t>(Category::parameters)]);
  };
  const double linear = 2.0 * (2 * 1024 * 1024 + 2 * 512 * 1024 + 3 * 1024 * 4096);
  const auto bits = [&](bool nested) {
    return 16 - 8 * (parameters({}) - parameters(WeightCodes{CodeKind::nf4, nested})) / linear;
  };
  EXPECT_NEAR(bits(true), 4.127, 5e-4);
  EXPECT_NEAR(bits(false), 4.5, 5e-4);
}

TEST(LargestRank, is_the_last_that_fits_the_budget) {
  const ModelConfig base = even_llama();
  const AdapterConfig adapter{.targets = {.names = {"q_proj", "v_proj"}}};
  const Layout layout{.micro_batch = 1, .seq_length = 64};
  const auto peak_of = [&](int64_t rank) {
    AdapterConfig each = adapter;
    each.r = rank;
    return predict(with_adapter(base, resolve_adapter(each, base, "RUN.json")), layout).most().peak_total;
  };
  const LargestRank seven = largest_rank(adapter, base, layout, peak_of(7));
  EXPECT_EQ(seven.rank, 7);
  EXPECT_EQ(seven.peak, peak_of(7));
  EXPECT_FALSE(seven.by_matrix);
  EXPECT_EQ(largest_rank(adapter, base, layout, peak_of(1) - 1).rank, 0);
  const LargestRank all = largest_rank(adapter, base, layout, int64_t{1} << 40);
  EXPECT_EQ(all.rank, 32) << "v_proj has 32 outputs";
  EXPECT_TRUE(all.by_matrix);
}

}  // namespace
}  // namespace nought::adapter_memory_test
