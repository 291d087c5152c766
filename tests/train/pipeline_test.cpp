// Ranks that hold different layers: steps, checkpoints and the cut.
#include <array>

#include "support/message_of.h"
#include "support/sweep.h"
#include "support/training_case.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::pipeline_test {
namespace {

using test::MeshLayout;
using test::small_model;
using test::TrainingCase;
using test::TrainingRank;
using test::TrainingResult;

/// Four micro-batches of a row for each of up to four ranks, evaluated after each step.
TrainingCase on(const GridSizes& sizes, int stage = 0) {
  return {.model = small_model("grouped_heads", 5),
          .mesh = {.sizes = sizes, .stage = stage},
          .steps = {0, 3},
          .rows = {.of_step = 16, .length = 12},
          .evaluates = true};
}

/// The case without its pipeline stages.
TrainingResult in_one_stage(TrainingCase each) {
  each.mesh.sizes.pipeline = 1;
  return each.run();
}

TEST(Pipeline, steps_of_every_number_of_stages_have_the_bits_of_one) {
  TrainingCase each = on({});
  each.steps.end = 8;
  const TrainingResult alone = each.run();
  for (const int stages : {2, 3, 4, 7}) {
    each.mesh.sizes.pipeline = stages;
    expect_same_bits(each.run(), alone);
  }
}

/// Every schedule on 2, 4 and 8 ranks, with every number of stages per rank that it runs, up to 16 stages.
std::vector<MeshLayout> every_pipeline() {
  std::vector<MeshLayout> all;
  for (const int ranks : {2, 4, 8})
    for (int64_t chunks = 1; ranks * chunks <= 16; ++chunks)
      for (const PipelineSchedule schedule : test::kAllSchedules) {
        const bool interleaved = schedule == PipelineSchedule::interleaved && chunks > 1 && chunks <= 4;
        if (interleaved || (schedule != PipelineSchedule::interleaved && chunks == default_chunks(schedule)))
          all.push_back({.sizes = {.pipeline = ranks}, .schedule = schedule, .chunks = chunks});
      }
  return all;
}

/// With a layer for each of 16 stages. Where embeddings are tied, the gradients of the head's use and of the
/// embedding's are added in another order.
TrainingCase deep() {
  TrainingCase each = on({});
  each.model = small_model("grouped_heads", 14);
  each.accumulation = 8, each.steps.end = 2;
  return each;
}

TEST(Pipeline, every_schedule_has_the_bits_of_one_rank) {
  TrainingCase each = deep();
  const TrainingResult alone = each.run();
  std::array<TrainingResult, 4> two;  // data-parallel ranks, by ZeRO stage
  for (const int stage : {0, 1, 2, 3}) {
    each.mesh = test::sharded(2, stage);
    two[static_cast<size_t>(stage)] = each.run();
  }
  int turn = 0;
  for (const MeshLayout& layout : every_pipeline()) {
    each.mesh = layout;
    const int stage = turn % 4;
    expect_same_bits(each.run(), alone);
    if (!test::samples(turn++, 3) || layout.sizes.pipeline > 4) continue;
    each.mesh.sizes.shard = 2, each.mesh.stage = stage;
    expect_same_bits(each.run(), two[static_cast<size_t>(stage)]);
  }
}

TEST(Pipeline, fewer_micro_batches_than_stages_have_them_too) {
  for (const int64_t accumulation : {1, 2, 3})
    for (const int stages : {2, 4}) {
      TrainingCase each = on({.pipeline = stages});
      each.accumulation = accumulation, each.rows.of_step = 4 * accumulation;
      expect_same_bits(each.run(), in_one_stage(each));
    }
}

TEST(Pipeline, every_zero_stage_has_the_bits_of_the_same_data_parallel_ranks) {
  for (const int stage : {0, 1, 2, 3})
    for (const int64_t bucket : {0, 5000}) {
      TrainingCase each = on({.shard = 2, .pipeline = bucket > 0 ? 2 : 4}, stage);
      each.settings.reduce_bucket = each.settings.gather_bucket = bucket;
      expect_same_bits(each.run(), in_one_stage(each));
    }
}

TEST(Pipeline, tensor_ranks_have_the_bits_of_the_same_tensor_ranks) {
  for (const TrainingCase& each : {on({.tensor = 2, .pipeline = 2}), on({.shard = 2, .tensor = 2, .pipeline = 2}, 3)})
    expect_same_bits(each.run(), in_one_stage(each));
}

TEST(Pipeline, tied_embeddings_are_those_of_one_rank_up_to_rounding) {
  for (const auto& [sizes, stage] : {std::pair(GridSizes{.pipeline = 2}, 0),
                                     {GridSizes{.pipeline = 3}, 0},
                                     {GridSizes{.pipeline = 4}, 0},
                                     {GridSizes{.shard = 2, .pipeline = 3}, 1},
                                     {GridSizes{.shard = 2, .pipeline = 3}, 2},
                                     {GridSizes{.shard = 2, .pipeline = 3}, 3},
                                     {GridSizes{.shard = 2, .tensor = 2, .pipeline = 2}, 0}}) {
    TrainingCase each = on(sizes, stage);
    each.model.tie_word_embeddings = true;
    each.steps.end = test::sweep(4, 8);
    expect_close(each.run(), in_one_stage(each));
  }
}

/// Each of the two stages adds up its own part over the micro-batches, and then they add the parts: one order, however
/// many stages there are. Where the stages turn back one rank holds both uses, and adds as its passes come.
TEST(Pipeline, tied_embeddings_have_the_same_bits_with_every_schedule_but_the_one_that_turns_back) {
  TrainingCase each = deep();
  each.model.tie_word_embeddings = true;
  const TrainingResult alone = each.run();
  each.mesh.sizes.pipeline = 2;
  const TrainingResult staged = each.run();
  EXPECT_NEAR(staged.norms[0], alone.norms[0], 1e-7 * alone.norms[0]) << "before any rounding can grow";
  EXPECT_NE(staged.norms, alone.norms) << "else the two sums would be one";
  int turn = 0;
  for (const MeshLayout& layout : every_pipeline()) {
    if (!test::samples(turn++, 3)) continue;
    each.mesh = layout;
    const TrainingResult result = each.run();
    expect_close(result, alone);
    if (!layout.pipeline().v_shaped()) expect_same_bits(result, staged);
  }
}

TEST(Pipeline, recomputation_bf16_and_factors_of_8_bits_leave_the_bits_alone) {
  for (const Recompute mode : {Recompute::selective, Recompute::full})
    for (const Fp8Scaling scaling : {Fp8Scaling::none, Fp8Scaling::delayed, Fp8Scaling::current}) {
      TrainingCase each = on({.pipeline = 3});
      each.settings.dtype = DType::bf16;
      each.recompute.mode = mode;
      each.recompute.interval = scaling == Fp8Scaling::delayed ? 2 : 0;
      each.fp8 = {.scaling = scaling, .history = 3};
      expect_same_bits(each.run(), in_one_stage(each));
    }
}

TEST(Pipeline, steps_that_overflow_are_skipped_by_all_stages) {
  for (const int stages : {2, 4}) {
    TrainingCase each = on({.pipeline = stages});
    each.settings.dtype = DType::f16;
    each.scaler = LossScaler({.initial_power = 24, .scale_window = 3, .hysteresis = 1});
    each.steps.end = 8, each.evaluates = false;
    const TrainingResult alone = in_one_stage(each);
    EXPECT_GT(alone.skipped(), 1);
    EXPECT_LT(alone.skipped(), 8);
    const TrainingResult staged = each.run();
    EXPECT_EQ(staged.scales, alone.scales);
    test::expect_same_bits(staged.weights, alone.weights);
  }
}

TEST(Pipeline, packed_documents_see_themselves_alone_on_every_stage) {
  for (const int stages : {2, 4}) {
    TrainingCase each = on({.pipeline = stages});
    const TrainingResult whole_rows = in_one_stage(each);
    each.rows.documents = true;
    const TrainingResult alone = in_one_stage(each);
    EXPECT_NE(alone.losses, whole_rows.losses) << "documents matter";
    expect_same_bits(each.run(), alone);
  }
}

TEST(Pipeline, what_is_frozen_gets_no_gradient_and_the_walk_back_ends_above_it) {
  for (const char* frozen : {"embed_tokens", "layers.[012]|embed_tokens", "lm_head|norm", "layers.[34]"})
    for (const int stages : {2, 4}) {
      TrainingCase each = on({.pipeline = stages});
      each.freezing.freeze = {frozen};
      each.clipping = 0.1;
      expect_same_bits(each.run(), in_one_stage(each));
    }
}

TEST(Pipeline, the_loss_that_balances_experts_is_that_of_all_layers) {
  for (const bool auxiliary : {false, true})
    for (const GridSizes& sizes :
         {GridSizes{.pipeline = 2}, GridSizes{.pipeline = 4}, GridSizes{.shard = 2, .pipeline = 2},
          GridSizes{.shard = 2, .pipeline = 2, .expert = 2}}) {
      TrainingCase each = on(sizes);
      each.model = small_model("experts", 4);
      each.model.experts->auxiliary_loss = auxiliary;
      each.model.experts->auxiliary_coefficient = 0.1;
      expect_same_bits(each.run(), in_one_stage(each));
    }
}

TEST(Pipeline, a_checkpoint_of_other_stages_is_continued_bit_for_bit) {
  TrainingCase whole = on({});
  whole.steps.end = 4;
  const TrainingResult expected = whole.run();
  const std::vector<GridSizes> meshes{{.pipeline = 2}, {.pipeline = 4}, {}, {.pipeline = 3}};
  for (size_t i = 0; i < meshes.size(); ++i) {
    TrainingCase first = whole, rest = whole;
    first.mesh.sizes = meshes[i], rest.mesh.sizes = meshes[(i + 1) % meshes.size()];
    expect_same_bits(test::resumed_at(2, first, rest), expected, 2);
  }
}

TEST(Pipeline, a_loss_that_is_not_finite_names_the_stage_that_made_it) {
  on({.pipeline = 2}).on_ranks([](TrainingRank& rank) {
    // The last block's norm, which the second stage has.
    for (const auto& unit : rank.decoder.units())
      for (size_t segment = 0; unit->name() == "block.4" && segment < unit->segments().size(); ++segment)
        if (!unit->elsewhere())
          rank.context.run(Fill{.x = rank.model.residency().updating({unit->index(), segment}), .value = 1e30});
    EXPECT_THAT(test::message_of<Error>([&] { rank.step(0); }),
                ::testing::AllOf(::testing::HasSubstr("rank 1: block.4"), ::testing::HasSubstr("forward")));
  });
}

}  // namespace
}  // namespace nought::pipeline_test
