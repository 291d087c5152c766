// Ranks that hold parts of the same sequences train as one rank does: steps with unequal masks, accumulation and active
// clipping, in fp32. Rows have a length that no number of chunks divides.
#include <map>

#include "support/sweep.h"
#include "support/training_case.h"
#include <gtest/gtest.h>

namespace nought::context_parallel_test {
namespace {

using test::expect_same_bits;
using test::kContextMethods;
using test::MeshLayout;
using test::small_model;
using test::TrainingCase;
using test::TrainingRank;
using test::TrainingResult;

// With rows of 13, a token of step 21 finds two experts equally good but for rounding, which then chooses one of them.
constexpr test::Rows kRows{.length = 11}, kPacked{.length = 11, .documents = true};

/// Every factorisation of 8 ranks with 2 or 4 that share sequences, experts over all that have different tokens.
/// Methods, ZeRO stages and schedules take turns; NOUGHT_LONG: each method at each stage.
std::vector<MeshLayout> context_meshes(bool experts) {
  std::vector<MeshLayout> all;
  size_t turn = 0;
  for (const int context : {2, 4})
    for (GridSizes sizes : test::factorisations(8 / context, false)) {
      sizes.context = context;
      if (experts) sizes.expert = std::min(context * sizes.shard, 8);
      for (size_t method = 0; method < kContextMethods.size(); ++method)
        for (int stage = 0; stage < 4; ++stage) {
          const bool next = method == turn % kContextMethods.size() && stage == static_cast<int>(turn % 4);
          if (!test::runs_everything() && !next) continue;
          // A rank of tp_size has 8 / tp_size heads, which those of sp_size divide.
          MeshLayout layout{.sizes = sizes, .stage = stage, .method = kContextMethods[method]};
          layout.sequence_parallel = sizes.tensor > 1 && turn % 2 == 0;
          layout.schedule = test::kAllSchedules[turn % test::kAllSchedules.size()];
          if (layout.stages() <= test::kMostStages) all.push_back(layout);
        }
      ++turn;
    }
  return all;
}

/// 8 ranks can share their heads.
constexpr std::array kStructures{"qk_norms", "shared_experts", "biases"};

class ContextParallel : public ::testing::TestWithParam<const char*> {
 protected:
  TrainingCase on(const MeshLayout& layout, const test::Rows& rows = kRows) const {
    return {.model = small_model(GetParam(), layout.layers()), .mesh = layout, .steps = {0, 3}, .rows = rows};
  }
  const bool experts_ = small_model(GetParam()).experts.has_value();
};

TEST_P(ContextParallel, steps_are_those_of_one_rank_on_every_mesh) {
  test::expect_like_one_rank(context_meshes(experts_), [&](const MeshLayout& layout) {
    TrainingCase each = on(layout);
    each.steps.end = test::sweep(2, 30);
    return each;
  });
}

/// Documents begin within chunks, at their ends and on both sides of them, also with a single token.
TEST_P(ContextParallel, documents_that_cross_ranks_see_themselves_alone) {
  const TrainingResult alone = on({}, kPacked).run();
  EXPECT_NE(alone.losses, on({}).run().losses) << "documents matter";
  for (const ContextMethod method : kContextMethods)
    for (const int context : {2, 4}) {
      const MeshLayout layout{.sizes = {.shard = 4 / context, .context = context}, .stage = 3, .method = method};
      expect_close(on(layout, kPacked).run(), alone);
    }
}

TEST_P(ContextParallel, an_evaluation_has_the_loss_and_the_logits_of_one_rank) {
  const auto evaluated = [&](const MeshLayout& layout) {
    TrainingCase each = on(layout);
    each.rows.of_step = 8, each.accumulation = 1;
    return each.on_rank(-1, [&](TrainingRank& rank) {
      const double loss = rank.evaluate(0);
      const Batch all = test::rows_of(*rank.context.memory, each.model, {.of_step = 8, .length = 11, .documents = true},
                                      0, 0, 1, 0, 1);
      const std::vector<float> logits = rank.decoder.logits(rank.context, all).to_vector<float>();
      return test::WholeTensors{{"logits", logits}, {"loss", {static_cast<float>(loss)}}};
    });
  };
  const test::WholeTensors alone = evaluated({});
  for (const ContextMethod method : kContextMethods)
    for (const GridSizes& sizes : {GridSizes{.context = 4}, {.shard = 2, .context = 2}, {.context = 2, .tensor = 2}}) {
      const MeshLayout layout{.sizes = sizes, .sequence_parallel = sizes.tensor > 1, .method = method};
      SCOPED_TRACE(layout.str());
      test::expect_close(evaluated(layout), alone, 2e-6);
    }
}

TEST_P(ContextParallel, every_rank_generates_what_one_rank_does) {
  const std::vector<float> alone = on({}).cached_logits();
  ASSERT_EQ(alone.size(), static_cast<size_t>(test::kSmallVocabulary));
  EXPECT_EQ(on({.sizes = {.context = 4}}).cached_logits(), alone) << "each has the whole cache";
}

/// In fp32 and in 16 bits, on the CPU and on the guarded device, whose kernels run late and give the CPU's bits: each
/// combination with one of the models.
TEST_P(ContextParallel, recomputation_and_inputs_on_the_host_change_no_bit) {
  RecomputeOptions on_host{Recompute::full}, contiguous{Recompute::full};
  on_host.tier.pool = contiguous.tier.pool = Pool::host;
  contiguous.contiguous = true, contiguous.checkpoints = 1;
  int64_t turn = std::ranges::find(kStructures, std::string_view(GetParam())) - kStructures.begin();
  for (const ContextMethod method : kContextMethods)
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      TrainingCase each = on({.sizes = {.shard = 2, .context = 2}, .stage = 3, .method = method}, kPacked).in(dtype);
      each.rows.of_step = 8, each.accumulation = 1;
      const test::WholeTensors plain = each.gradients();
      for (const bool guarded : {false, true})
        for (const RecomputeOptions& recompute :
             {RecomputeOptions(Recompute::none), RecomputeOptions(Recompute::selective),
              RecomputeOptions(Recompute::full), on_host, contiguous}) {
          if (!guarded && dtype != DType::f32) continue;
          if (!test::samples(turn++, 3)) continue;
          each.recompute = recompute, each.guarded = guarded;
          SCOPED_TRACE(each.str());
          expect_same_bits(each.gradients(), plain);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Families, ContextParallel, ::testing::ValuesIn(kStructures), test::name_of_structure);

TEST(ContextParallelRows, too_short_ones_and_heads_that_do_not_divide_are_refused) {
  TrainingCase each{.mesh = {.sizes = {.context = 4}, .method = ContextMethod::ring}};
  EXPECT_THROW(each.run(), ConfigError) << "rows of 7 tokens, 8 chunks";
  each.rows = kRows;
  each.mesh.method = ContextMethod::heads;
  each.model.num_heads = 6;
  EXPECT_THROW(each.run(), ConfigError);
}

}  // namespace
}  // namespace nought::context_parallel_test
