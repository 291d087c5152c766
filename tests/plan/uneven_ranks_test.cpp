// What is planned where ranks do not need the same: the most that a rank can need if its experts get every row, and the
// memory of each rank where tiles of states differ.
#include <tuple>

#include "support/agreement.h"
#include "support/size.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/plan/advice.h"
#include "nought/plan/table.h"

namespace nought::uneven_ranks_test {
namespace {

NOUGHT_FILE_SIZE(medium);

Layout spread_experts(int ranks, int expert_ranks, Recompute recompute) {
  return {.ranks = ranks,
          .zero_stage = 1,
          .expert_ranks = expert_ranks,
          .micro_batch = 2,
          .seq_length = 64,
          .recompute = recompute,
          .wire = Wire::threads};
}

TEST(UnevenRanks, the_bound_of_experts_is_what_a_rank_needs_that_gets_every_token) {
  for (const auto& [family, recompute, ranks] : {std::tuple("mixtral", Recompute::none, 2),
                                                 {"mixtral", Recompute::full, 4},
                                                 {"deepseek_v2", Recompute::none, 2}}) {
    // Weights are zeros, so that all scores are equal and every token chooses the first experts, which rank 0 has. Of
    // four ranks each has one expert: every token's other choice goes to rank 1.
    const Layout layout = spread_experts(ranks, ranks, recompute);
    SCOPED_TRACE(fmt::format("{}, {} hold experts, {}", family, ranks, layout.str()));
    const ModelConfig config = test::model_of(family);
    const Prediction predicted = predict(config, layout);
    const RankMemory measured = test::measure(config, layout).memory;
    ASSERT_TRUE(predicted.at_most);
    for (size_t c = 0; c < kNumCategories; ++c)
      test::expect_within_2_percent(predicted.at_most->peak[c], measured.peak[c], name_of(static_cast<Category>(c)));
    test::expect_within_2_percent(predicted.most().peak_total, measured.peak_total, "peak of all");
    if (recompute == Recompute::none) {
      EXPECT_GT(static_cast<double>(measured.peak_total), 1.02 * static_cast<double>(predicted.memory.peak_total));
    }
  }
}

TEST(UnevenRanks, a_capacity_limits_what_a_rank_can_get) {
  ModelConfig config = test::model_of("mixtral");
  const Layout layout = spread_experts(2, 2, Recompute::none);
  const int64_t without = predict(config, layout).most().peak_total;
  config.experts->capacity_factor = 1.25, config.experts->drop_tokens = true;
  const Prediction predicted = predict(config, layout);
  EXPECT_LT(predicted.most().peak_total, without);
  EXPECT_GT(predicted.most().peak_total, predicted.memory.peak_total);
}

TEST(UnevenRanks, budgets_hold_the_bound_and_tables_say_what_is_assumed) {
  const ModelConfig config = test::model_of("mixtral");
  const Layout layout = spread_experts(2, 2, Recompute::none);
  const Prediction predicted = predict(config, layout);
  const MemoryBudgets between{.device = (predicted.memory.peak_total + predicted.most().peak_total) / 2};
  EXPECT_FALSE(between.hold(predicted.most()));
  const std::string text = to_text(PlanReport{.config = config, .predictions = {predicted}, .budgets = between});
  EXPECT_THAT(text, testing::HasSubstr("too much"));
  EXPECT_THAT(text, testing::HasSubstr("as many tokens as any other; a rank needs at most " +
                                       format_bytes(predicted.most().peak_total)));
  for (const Advice& advice : changes_that_fit(config, layout, between))
    EXPECT_TRUE(between.hold(advice.prediction.most())) << advice.change;
  EXPECT_FALSE(predict(config, spread_experts(2, 1, Recompute::none)).at_most) << "no other rank sends rows";
}

TEST(UnevenRanks, lamb_with_states_in_files_is_planned_for_each_rank) {
  const test::TempFolder folder;
  constexpr int kRanks = 2;
  Layout layout{.ranks = kRanks, .zero_stage = 2, .micro_batch = 1, .seq_length = 64, .wire = Wire::threads};
  layout.sharding.dtype = layout.sharding.gradient_dtype = DType::bf16;
  layout.sharding.optimizer.method = LambOptions{};
  layout.sharding.offload_optimizer = {.tier = {Pool::file, folder.path().string()}, .sub_group = 100'000};
  layout.sharding.policy = Policy::stage(layout.zero_stage);
  const ModelConfig config = ModelConfig::from_json({{"model_type", "llama"},
                                                     {"vocab_size", 2048},
                                                     {"hidden_size", 256},
                                                     {"intermediate_size", 688},
                                                     {"num_hidden_layers", 3},
                                                     {"num_attention_heads", 4},
                                                     {"num_key_value_heads", 2}});
  std::vector<RankMemory> measured(kRanks);
  run_ranks(kRanks, [&](Communicator& world, const Context& context) {
    Decoder decoder(config);
    ShardedModel model(context, world, decoder, layout.sharding);
    model.load(InitialState(1));
    context.memory->ledger().reset_peaks();
    Engine engine(model);
    for (int step = 0; step < 2; ++step) {
      const Batch batch = empty_batch(layout.micro_batch, layout.seq_length, *context.memory);
      context.zero(batch.input_ids), context.zero(batch.targets);
      engine.step(std::span(&batch, 1), layout.tokens_per_step(), 1e-3, 1);
    }
    model.settle();
    measured[static_cast<size_t>(world.rank())] = peaks_of(*context.memory);
  });
  const std::vector<RankMemory> planned = memory_of_ranks(config, predict_places(config, layout));
  ASSERT_EQ(planned.size(), measured.size());
  for (size_t rank = 0; rank < measured.size(); ++rank) {
    EXPECT_EQ(planned[rank].file_peak, measured[rank].file_peak) << "rank " << rank;
    test::expect_within_2_percent(planned[rank].peak_total, measured[rank].peak_total, "peak of all");
  }
  EXPECT_NE(measured[0].file_peak, measured[1].file_peak);
  EXPECT_EQ(predict(config, layout).memory.file_peak, std::max(measured[0].file_peak, measured[1].file_peak));
}

}  // namespace
}  // namespace nought::uneven_ranks_test
