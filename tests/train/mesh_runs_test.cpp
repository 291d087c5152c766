// Every mesh computes what one rank computes: steps with unequal masks, accumulation and active clipping, in fp32.
#include <map>
#include <set>

#include "support/golden_case.h"
#include "support/loaded_states.h"
#include "support/sweep.h"
#include "support/temp_folder.h"
#include "support/training_case.h"
#include <gtest/gtest.h>

#include "nought/weights/hf_folder.h"

namespace nought::mesh_runs_test {
namespace {

using test::expect_close;
using test::expect_same_bits;
using test::MeshLayout;
using test::small_model;
using test::TrainingCase;
using test::TrainingRank;
using test::TrainingResult;

/// What the suite leaves out of all combinations is not what one of the axes needs.
TEST(SampledMeshes, each_zero_stage_and_each_schedule_meets_each_axis) {
  std::set<std::pair<Axis, int>> stages;
  std::set<std::pair<Axis, PipelineSchedule>> schedules;
  for (const bool experts : {false, true})
    for (const MeshLayout& layout : test::sampled_meshes(8, experts))
      for (const Axis axis : test::axes_with_ranks(layout.sizes)) {
        stages.insert({axis, layout.stage});
        if (layout.sizes.pipeline > 1) schedules.insert({axis, layout.schedule});
      }
  EXPECT_EQ(stages.size(), 5u * 4);
  EXPECT_EQ(schedules.size(), 5u * test::kAllSchedules.size());
}

class MeshRuns : public ::testing::TestWithParam<const char*> {
 protected:
  TrainingCase on(const MeshLayout& layout, Interval steps = {0, 4}) const {
    return {.model = small_model(GetParam(), layout.layers()), .mesh = layout, .steps = steps};
  }
  const bool experts_ = small_model(GetParam()).experts.has_value();
  const bool large_ = small_model(GetParam()).num_heads == 8;  // 8 ranks can share it
  const std::vector<MeshLayout> some_ = test::some_meshes(experts_);
};

/// The suite has every mesh of as many ranks as the model is for once; NOUGHT_LONG those of 4 and of 8 at every stage,
/// with every schedule, over thirty steps.
TEST_P(MeshRuns, steps_are_those_of_one_rank_on_every_mesh) {
  const Interval steps{0, test::sweep(2, 30)};
  std::vector<MeshLayout> layouts = test::sampled_meshes(large_ ? 8 : 4, experts_);
  if (test::runs_everything()) {
    layouts = test::every_mesh(4, experts_);
    const std::vector<MeshLayout> of_eight = test::every_mesh(8, experts_);
    if (large_) layouts.insert(layouts.end(), of_eight.begin(), of_eight.end());
  }
  test::expect_like_one_rank(layouts, [&](const MeshLayout& layout) { return on(layout, steps); });
}

/// A chain of meshes, each of which continues what the one before it has saved.
TEST_P(MeshRuns, a_checkpoint_of_one_mesh_is_continued_by_another) {
  const int two = experts_ ? 2 : 1, four = experts_ ? 4 : 1;
  const std::vector<MeshLayout> chain{
      {.sizes = {.shard = 2, .tensor = 2, .expert = two}, .stage = 3},
      {.sizes = {.context = 2, .tensor = 2}, .sequence_parallel = true, .stage = 0},
      {.sizes = {.shard = 2, .pipeline = 2, .expert = two}, .stage = 2, .schedule = PipelineSchedule::zbv},
      {.sizes = {.shard = 4, .expert = four}, .stage = 1},
      {.sizes = {.tensor = 2, .pipeline = 4}, .stage = 1},
      {.sizes = {.replicate = 2, .shard = 2, .pipeline = 2, .expert = two}, .stage = 3},
      {.sizes = {.replicate = 4, .tensor = 2}, .stage = 0},
      {.sizes = {.replicate = 4}, .stage = 1},
      {},
      {.sizes = {.context = 4, .expert = four}, .stage = 1, .method = ContextMethod::heads},
      {.sizes = {.shard = 4, .tensor = 2, .expert = two}, .sequence_parallel = true, .stage = 2}};
  const auto count = static_cast<int64_t>(chain.size());
  TrainingCase each = on({}, {0, count});
  each.rows.length = 11;
  const TrainingResult alone = each.run();
  const test::TempFolder folder;
  each.saved = folder.path().string();
  for (int64_t i = 0; i < count; ++i) {
    each.mesh = chain[static_cast<size_t>(i)], each.steps = {i, i + 1};
    SCOPED_TRACE(each.str());
    TrainingResult part = each.run();
    each.resumed = each.saved;
    if (i + 1 < count) {
      EXPECT_NEAR(part.losses[0], alone.losses[static_cast<size_t>(i)], 1e-5);
    } else {
      expect_close(part, alone, static_cast<size_t>(i));
    }
  }
}

TEST_P(MeshRuns, the_same_mesh_resumes_bit_for_bit) {
  const TrainingCase whole = on(some_[1]);
  expect_same_bits(test::resumed_at(2, whole, whole), whole.run(), 2);
}

TEST_P(MeshRuns, muon_sees_whole_matrices) {
  TrainingCase each = on({});
  each.settings.optimizer.method = MuonOptions{.others = {.eps = 1e-4}};  // see TrainingCase
  const TrainingResult alone = each.run();
  expect_close_on(some_, each, alone);
}

/// In bf16, and with factors of 8 bits, the losses are not those of one rank to the last digit, but the model learns
/// the same.
TEST_P(MeshRuns, bf16_and_fp8_follow_one_rank) {
  // Each mesh with each scaling, but not with every model.
  int64_t turn = test::turn_of_structure(GetParam());
  for (const Fp8Scaling scaling : {Fp8Scaling::none, Fp8Scaling::delayed, Fp8Scaling::current}) {
    TrainingCase each = on({}, {0, 6});
    each.settings.dtype = DType::bf16;
    each.fp8 = {.scaling = scaling, .history = 4};
    each.rows.length = 11;
    const TrainingResult alone = each.run();
    const int two = experts_ ? 2 : 1;
    for (const MeshLayout& layout :
         {MeshLayout{.sizes = {.shard = 2, .tensor = 2, .expert = two}},
          MeshLayout{.sizes = {.shard = 2, .tensor = 2, .expert = two}, .sequence_parallel = true},
          MeshLayout{.sizes = {.shard = 2, .context = 2}, .method = ContextMethod::ring},
          MeshLayout{.sizes = {.shard = 2, .context = 2}, .method = ContextMethod::gather},
          MeshLayout{.sizes = {.shard = 2, .context = 2}, .method = ContextMethod::heads}}) {
      if (!test::samples(turn++, 3)) continue;
      each.mesh = layout;
      expect_losses_within(each.run(), alone, 3e-2);
    }
  }
}

TEST_P(MeshRuns, evaluations_and_logits_with_a_cache_are_those_of_one_rank) {
  const auto evaluated = [&](const MeshLayout& layout) {
    return on(layout).on_rank(-1, [](TrainingRank& rank) {
      const double loss = rank.evaluate(0);
      return std::pair(loss, rank.cached_logits());
    });
  };
  const auto [loss, logits] = evaluated({});
  ASSERT_EQ(logits.size(), static_cast<size_t>(test::kSmallVocabulary));
  for (const MeshLayout& layout : some_) {
    SCOPED_TRACE(layout.str());
    const auto [shared_loss, shared] = evaluated(layout);
    EXPECT_NEAR(shared_loss, loss, 1e-6);
    expect_close({{"logits", shared}}, {{"logits", logits}}, 1e-5);
  }
}

/// Each mesh with one of two models.
TEST_P(MeshRuns, recomputation_and_overlap_change_no_bit) {
  int64_t turn = test::turn_of_structure(GetParam());
  for (const MeshLayout& layout : some_) {
    if (!test::samples(turn++, 2)) continue;
    SCOPED_TRACE(layout.str());
    TrainingCase each = on(layout);
    each.rows.of_step = 8, each.accumulation = 1;
    const test::WholeTensors plain = each.gradients();
    each.settings.overlap = false;
    expect_same_bits(each.gradients(), plain);
    each.settings.overlap = true;
    RecomputeOptions shared_out = Recompute::full;
    shared_out.partitioned = true;
    for (const RecomputeOptions& recompute :
         {RecomputeOptions(Recompute::full), RecomputeOptions(Recompute::selective), shared_out}) {
      each.recompute = recompute;
      expect_same_bits(each.gradients(), plain);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, MeshRuns, ::testing::Values("qk_norms", "shared_experts", "biases", "latent"),
                         test::name_of_structure);

class MeshExports : public ::testing::TestWithParam<const char*> {};

TEST_P(MeshExports, an_exported_folder_is_whole) {
  test::GoldenCase each{.folder = test::golden_folder(GetParam())};
  const int two = each.config().experts ? 2 : 1;
  for (const MeshLayout& layout :
       {MeshLayout{.sizes = {.shard = 2, .tensor = 2, .pipeline = 2, .expert = two}, .stage = 3},
        MeshLayout{.sizes = {.replicate = 2, .shard = 2, .tensor = 2, .expert = two}, .stage = 2}}) {
    SCOPED_TRACE(layout.str());
    const test::TempFolder out;
    each.mesh = layout;
    each.training().on_ranks(
        [&](TrainingRank& rank) { export_hf_folder(rank.model, rank.decoder.config(), {}, out.path(), 1 << 30); });
    const Decoder decoder(ModelConfig::from_folder(out.path()));
    const HfWeights before(each.folder, decoder), after(out.path(), decoder);
    test::expect_same_bits(test::values_of(after, decoder), test::values_of(before, decoder));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, MeshExports,
                         ::testing::Values("open/llama_gqa", "open/mixtral", "open/gpt_oss", "open/deepseek_v3"),
                         test::family_of);

}  // namespace
}  // namespace nought::mesh_runs_test
