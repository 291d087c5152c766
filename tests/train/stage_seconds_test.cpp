// A pipeline that is cut by measured time: all ranks agree on what was measured, and results do not depend on it.
#include "nought/measure/stage_seconds.h"

#include <mutex>

#include "support/trainer_runs.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/train/trainer.h"

namespace nought::stage_seconds_test {
namespace {

using test::TempFolder;
using testing::Each;
using testing::Gt;
using testing::HasSubstr;

/// Layers of two kinds in turn: the second of each two has experts.
Json layers_of_kinds() {
  return {{"model_type", "qwen3_moe"},
          {"vocab_size", 256},
          {"hidden_size", 16},
          {"intermediate_size", 24},
          {"moe_intermediate_size", 16},
          {"num_hidden_layers", 4},
          {"num_attention_heads", 2},
          {"num_key_value_heads", 2},
          {"head_dim", 8},
          {"num_experts", 4},
          {"num_experts_per_tok", 2},
          {"decoder_sparse_step", 2},
          {"max_position_embeddings", 32}};
}

RunPlan plan_cut_by_time(const TempFolder& folder, int tensor, int stages) {
  RunPlan plan = test::plan_on_lines(folder, 3, 1e-3);
  plan.layout.ranks = tensor * stages;
  plan.layout.tensor_ranks = tensor;
  plan.layout.pipeline = {.ranks = stages, .partition = {.method = "profile"}};
  return plan;
}

TEST(StageSeconds, are_the_same_on_all_ranks_and_for_layers_of_a_kind) {
  const TempFolder folder;
  for (const int tensor : {1, 2})
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      RunPlan plan = plan_cut_by_time(folder, tensor, 2);
      plan.model_config = layers_of_kinds();
      plan.layout.recompute = recompute;
      std::mutex mutex;
      std::vector<std::vector<double>> costs;
      run_ranks(plan.layout.ranks, [&](Communicator& world, const Context& context) {
        const RunPlan measured = with_stage_seconds(plan, model_config_of(plan), world, context);
        EXPECT_TRUE(measured.layout.pipeline.partition.measured);
        EXPECT_EQ(context.memory->ledger().peak_total(), 0) << "it is no part of the run's memory";
        EXPECT_EQ(
            with_stage_seconds(measured, model_config_of(measured), world, context).layout.pipeline.partition.costs,
            measured.layout.pipeline.partition.costs)
            << "once is enough";
        const std::lock_guard lock(mutex);
        costs.push_back(measured.layout.pipeline.partition.costs);
      });
      EXPECT_THAT(costs, Each(costs.front()));
      ASSERT_EQ(costs.front().size(), 6u) << "the embedding, four blocks and the head";
      EXPECT_THAT(costs.front(), Each(Gt(0.0)));
      EXPECT_EQ(costs.front()[1], costs.front()[3]) << "without experts";
      EXPECT_EQ(costs.front()[2], costs.front()[4]) << "with experts";
    }
}

TEST(StageSeconds, are_measured_only_where_the_cut_is_by_time) {
  const TempFolder folder;
  RunPlan plan = plan_cut_by_time(folder, 1, 2);
  plan.layout.pipeline.partition.method = "uniform";
  run_ranks(2, [&](Communicator& world, const Context& context) {
    EXPECT_TRUE(
        with_stage_seconds(plan, model_config_of(plan), world, context).layout.pipeline.partition.costs.empty());
  });
}

test::ToldRun train(RunPlan plan, int ranks) {
  plan.layout.accumulation = 4;
  return test::run_plan(plan, {.ranks = ranks, .mode = StartMode::overwrite});
}

TEST(StageSeconds, a_run_that_is_cut_by_them_shows_the_cut_and_has_the_bits_of_one_rank) {
  const TempFolder folder;
  const test::ToldRun alone = train(test::plan_on_lines(folder, 3, 1e-3), 1),
                      cut = train(plan_cut_by_time(folder, 1, 3), 3);
  EXPECT_EQ(cut.losses(), alone.losses());
  for (size_t i = 0; i < alone.steps.size(); ++i) EXPECT_EQ(cut.steps[i].grad_norm, alone.steps[i].grad_norm);
  ASSERT_EQ(cut.summary.mesh.size(), 5u);
  EXPECT_THAT(cut.summary.mesh[1], HasSubstr("cut by measured time: embedding "));
  EXPECT_THAT(cut.summary.mesh[2], HasSubstr("% of the time"));
}

}  // namespace
}  // namespace nought::stage_seconds_test
