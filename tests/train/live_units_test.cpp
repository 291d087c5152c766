// Units that stay gathered between the passes of a step change no bit, on whatever mesh, with what reads, sends or
// stores parameters otherwise; evaluations and generation between two steps read what the last update wrote.
#include "support/sweep.h"
#include "support/temp_folder.h"
#include "support/training_case.h"
#include <gtest/gtest.h>

namespace nought::live_runs_test {
namespace {

using test::sharded;
using test::small_model;
using test::TrainingCase;
using test::TrainingResult;

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

TrainingCase at_stage_3(const GridSizes& sizes, const char* model = "qk_norms", int layers = 2) {
  return {
      .model = small_model(model, layers), .mesh = {.sizes = sizes, .stage = 3}, .steps = {0, 3}, .evaluates = true};
}

int64_t gathered(const TrainingCase& of) {
  return of.on_rank(0, [](test::TrainingRank& rank) {
    const auto elements = [&] {
      int64_t sum = 0;
      for (const auto& group : rank.mesh.traffic_by_axes()) sum += group.traffic[Collective::all_gather].elements;
      return sum;
    };
    rank.step(0);
    const int64_t before = elements();
    rank.step(1);
    return elements() - before;
  });
}

/// All that stay, the smaller half, and those that are read again soon.
std::vector<LiveParameters> limits_of(const TrainingCase& of) {
  const std::vector<int64_t> sizes =
      of.on_rank(0, [](test::TrainingRank& rank) { return rank.model.live_units().sizes(); });
  int64_t half = 0;
  for (size_t i = 0; i <= sizes.size() / 2; ++i) half += sizes[i];
  return {{.most = kAll}, {.most = half}, {.most = kAll, .reuse_distance = sizes.back()}};
}

/// With one of the limits, which cases have in turn.
void expect_no_bit_changes(const TrainingCase& plain, int turn = 0) {
  const TrainingResult expected = plain.run();
  const int64_t without = gathered(plain);
  for (const LiveParameters& limits : limits_of(plain)) {
    if (!test::samples(turn++, 3)) continue;
    TrainingCase each = plain;
    each.settings.live = limits;
    expect_same_bits(each.run(), expected);
    EXPECT_LT(gathered(each), without) << plain.str();
  }
}

TEST(LiveRuns, no_bit_changes_on_any_mesh) {
  int turn = 0;
  expect_no_bit_changes(at_stage_3({.shard = 4}, "shared_experts"), turn++);
  expect_no_bit_changes(at_stage_3({.replicate = 2, .shard = 2}), turn++);
  expect_no_bit_changes(at_stage_3({.shard = 2, .tensor = 2}), turn++);
  expect_no_bit_changes(at_stage_3({.shard = 4, .expert = 2}, "shared_experts"), turn++);
  expect_no_bit_changes(at_stage_3({.shard = 1, .context = 2}), turn++);
  for (const PipelineSchedule schedule : {PipelineSchedule::one_f_one_b, PipelineSchedule::zbv}) {
    TrainingCase stages = at_stage_3({.shard = 2, .pipeline = 2}, "qk_norms", 4);
    stages.mesh.schedule = schedule;
    expect_no_bit_changes(stages, turn++);
  }
}

TEST(LiveRuns, no_bit_changes_with_recomputation_tiles_or_without_overlap) {
  TrainingCase blocks = at_stage_3({.shard = 2}), together = at_stage_3({.shard = 2}, "latent"), tiles = blocks,
               frozen = blocks;
  blocks.recompute = Recompute::full, blocks.settings.overlap = false;
  together.recompute = Recompute::full, together.recompute.checkpoints = 2;
  tiles.recompute = Recompute::full, tiles.recompute.unit_tiles = 2;
  frozen.freezing.freeze = {"layers\\.0\\."};
  int turn = 0;
  for (const TrainingCase& each : {blocks, together, tiles, frozen}) expect_no_bit_changes(each, turn++);
}

TEST(LiveRuns, no_bit_changes_with_codes_and_second_copies) {
  int turn = 0;
  for (const auto& [bits, secondary] : {std::pair(8, 1), {8, 2}, {0, 2}}) {
    TrainingCase each = at_stage_3({.shard = 4, .host_ranks = 2, .secondary = secondary});
    each.settings.codes.weight_bits = bits;
    expect_no_bit_changes(each, turn++);
  }
}

/// Updates that run overlapped with the backward pass, or a step late, write parameters while others are still read.
TEST(LiveRuns, no_bit_changes_with_what_lies_in_files) {
  const test::TempFolder folder;
  TrainingCase files = at_stage_3({.shard = 2});
  files.settings.offload_param = {.tier = {Pool::file, folder.path().string()}, .buffer_size = 20'000};
  TrainingCase early = files, late = files;
  early.settings.offload_optimizer.tier = late.settings.offload_optimizer.tier = files.settings.offload_param.tier;
  early.settings.offload_optimizer.early = true, early.clipping = 0;
  late.settings.offload_optimizer.delay_after = 0;
  int turn = 0;
  for (const TrainingCase& each : {files, early, late}) expect_no_bit_changes(each, turn++);
}

/// On one rank nothing is gathered: what stays is not read from its file again.
TEST(LiveRuns, one_rank_reads_its_files_once_in_a_step) {
  const test::TempFolder folder;
  TrainingCase each = at_stage_3({});
  each.settings.offload_param = {.tier = {Pool::file, folder.path().string()}};
  const auto read = [&] {
    return each.on_rank(0, [](test::TrainingRank& rank) {
      rank.step(0);
      const int64_t before = rank.model.traffic().read;
      rank.step(1);
      return rank.model.traffic().read - before;
    });
  };
  const TrainingResult expected = each.run();
  const int64_t before = read();
  each.settings.live.most = kAll;
  expect_same_bits(each.run(), expected);
  EXPECT_LT(read(), before / 4) << "once by the passes, in place of eight times, and once by the update";
}

TEST(LiveRuns, steps_that_are_skipped_leave_nothing_old) {
  TrainingCase each = at_stage_3({.shard = 2}).in(DType::f16);
  each.scaler = LossScaler({.initial_power = 22, .scale_window = 4});
  each.steps.end = 8;
  EXPECT_GT(each.run().skipped(), 0);
  expect_no_bit_changes(each);
}

TEST(LiveRuns, stages_agree_with_what_stays) {
  TrainingCase each = at_stage_3(sharded(2, 3).sizes);
  each.settings.live.most = kAll;
  for (const int64_t accumulation : {1, 4}) {
    each.accumulation = accumulation, each.mesh.stage = 3;
    const TrainingResult live = each.run();
    each.mesh.stage = 2;
    expect_same_bits(live, each.run());
  }
}

TEST(LiveRuns, generation_between_steps_reads_what_the_last_update_wrote) {
  TrainingCase each = at_stage_3({.shard = 2});
  const auto logits = [&] {
    return each.on_rank(0, [](test::TrainingRank& rank) {
      std::vector<std::vector<float>> all;
      for (int64_t step = 0; step < 2; ++step) rank.step(step), all.push_back(rank.cached_logits());
      return all;
    });
  };
  const std::vector<std::vector<float>> plain = logits();
  EXPECT_NE(plain[0], plain[1]);
  each.settings.live.most = kAll;
  EXPECT_EQ(logits(), plain);
}

}  // namespace
}  // namespace nought::live_runs_test
