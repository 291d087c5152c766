// What an adapter's run keeps: the frozen model, and of the adapter what ZeRO keeps of a whole model, by the formula of
// the stage.
#include "support/agreement.h"
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
