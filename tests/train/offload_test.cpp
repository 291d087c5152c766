// Where optimizer states, gradients, parameters and saved inputs live changes no bit of runs on meshes, nor of what
// resumes from their checkpoints: beside the CPU, and beside a device that the host has no access to.
#include <array>

#include "support/sweep.h"
#include "support/temp_folder.h"
#include "support/training_case.h"
#include <gtest/gtest.h>

namespace nought::offload_test {
namespace {

using test::MeshLayout;
using test::sharded;
using test::small_model;
using test::TrainingCase;
using test::TrainingResult;

class OffloadRuns : public testing::Test {
 protected:
  /// Options of a run whose states are in files.
  TrainingCase states_in_files(TrainingCase each) const {
    each.settings.offload_optimizer = {
        .tier = {Pool::file, folder_.path().string()}, .sub_group = 700, .reads_ahead = true, .buffers = 8};
    return each;
  }
  TrainingCase parameters_in_files(TrainingCase each, int64_t in_memory = 500) const {
    each.settings.offload_param = {.tier = {Pool::file, folder_.path().string()}, .buffers = 2, .in_memory = in_memory};
    return each;
  }
  TrainingCase all_in_files(const TrainingCase& each) const { return parameters_in_files(states_in_files(each)); }
  /// And gradients; parameters where a stage shards them.
  TrainingCase with_gradients(const TrainingCase& each) const {
    TrainingCase offloaded = each.mesh.stage == 3 ? all_in_files(each) : states_in_files(each);
    offloaded.settings.offload_optimizer.gradients_in_file = true;
    return offloaded;
  }
  static TrainingCase on(const MeshLayout& layout, int64_t steps = 2, const char* model = "grouped_heads") {
    return TrainingCase{.model = small_model(model, 4), .mesh = layout, .steps = {0, steps}}.in(DType::bf16);
  }

  const test::TempFolder folder_;
};

TEST_F(OffloadRuns, states_and_parameters_in_files_give_the_same_bits_on_meshes) {
  int turn = 0;
  for (const MeshLayout& layout :
       {MeshLayout{.sizes = {.shard = 2, .pipeline = 2}, .stage = 1},
        MeshLayout{.sizes = {.shard = 2, .pipeline = 2}, .stage = 3},
        MeshLayout{.sizes = {.shard = 2, .tensor = 2}, .stage = 3}, MeshLayout{.sizes = {.pipeline = 2}, .stage = 3},
        MeshLayout{.sizes = {.replicate = 2, .shard = 2}, .stage = 3},
        MeshLayout{.sizes = {.shard = 4, .host_ranks = 2}, .stage = 3}}) {
    const TrainingResult expected = on(layout).run();
    if (layout.stage < 3 || test::samples(turn++, 3)) expect_same_bits(states_in_files(on(layout)).run(), expected);
    if (layout.stage < 3) continue;
    expect_same_bits(all_in_files(on(layout)).run(), expected);
    if (test::samples(turn, 3)) expect_same_bits(parameters_in_files(on(layout)).run(), expected);
  }
}

/// Four micro-batches, some of them under way at once. Where one rank has a segment for itself, whole gradients come
/// and go: those that sums over ranks complete in the end, and those that a schedule forms in two parts.
TEST_F(OffloadRuns, gradients_in_files_give_the_same_bits_on_meshes) {
  int i = 0;
  for (const MeshLayout& layout :
       {MeshLayout{}, sharded(2, 3), MeshLayout{.sizes = {.shard = 2, .pipeline = 2}, .stage = 2},
        MeshLayout{.sizes = {.pipeline = 2}, .stage = 3, .schedule = PipelineSchedule::zbh1},
        MeshLayout{.sizes = {.tensor = 2}, .sequence_parallel = true, .stage = 3},
        MeshLayout{.sizes = {.shard = 2, .expert = 2}, .stage = 3},
        MeshLayout{.sizes = {.replicate = 2, .shard = 2}, .stage = 3}})
    for (const DType dtype : {DType::bf16, DType::f32}) {
      const int turn = i++;
      if (!test::samples(turn + turn / 2, 2)) continue;  // each mesh has one of the dtypes
      const char* model = layout.sizes.expert > 1   ? "shared_experts"
                          : layout.sizes.tensor > 1 ? "qk_norms"
                                                    : "grouped_heads";
      TrainingCase each = on(layout, 2, model).in(dtype);
      if (turn % 3 == 0) each.recompute.mode = Recompute::full;
      expect_same_bits(with_gradients(each).run(), each.run());
    }
}

TEST_F(OffloadRuns, of_other_optimizers_give_the_same_bits_on_meshes) {
  int turn = 0;
  for (const MeshLayout& layout : {MeshLayout{.sizes = {.shard = 2, .pipeline = 2}, .stage = 2},
                                   MeshLayout{.sizes = {.shard = 2, .tensor = 2}, .stage = 3}})
    for (const auto& [method, block] :
         {std::pair(Method(LionOptions{}), int64_t{0}), {MuonOptions{}, 0}, {AdamOptions{.eps = 1e-4}, 64}}) {
      if (!test::samples(turn++, 2)) continue;
      TrainingCase each = on(layout).in(block > 0 ? DType::f16 : DType::bf16);
      each.settings.optimizer.method = method, each.settings.optimizer.state_block = block;
      SCOPED_TRACE(fmt::format("{}, method {}, blocks of {}", each.str(), method.index(), block));
      expect_same_bits(with_gradients(each).run(), each.run());
    }
}

/// Saves with one offload tier and resumes with another, on another number of ranks and at another stage too.
TEST_F(OffloadRuns, resume_with_another_tier_stage_and_tile) {
  const TrainingResult whole = on(sharded(2, 2), 4).run();
  const auto on_tier = [&](int tier, int stage) {
    const TrainingCase each = on(sharded(2, tier == 2 ? 3 : stage), 4);
    return tier == 0 ? each : tier == 1 ? states_in_files(each) : with_gradients(each);
  };
  for (int from = 0; from < 3; ++from)
    for (int to = 0; to < 3; ++to) {
      const bool next = to == (from + 1) % 3;
      if (from == to || !(next || test::runs_everything())) continue;
      SCOPED_TRACE(fmt::format("from {} to {}", from, to));
      expect_same_bits(test::resumed_at(2, on_tier(from, 2), on_tier(to, from == 0 ? 3 : 2)), whole, 2);
      // On one rank: as a run without files resumes there.
      if (!next) continue;
      expect_same_bits(test::resumed_at(2, on_tier(from, 2), states_in_files(on({}, 4))),
                       test::resumed_at(2, on_tier(from, 2), on({}, 4)));
    }
}

/// With micro-batches in flight, where ranks share matrices, and beside a device that the host has no access to.
TEST_F(OffloadRuns, inputs_of_recomputed_blocks_in_files_change_no_bit_on_any_mesh) {
  RecomputeOptions each = Recompute::full, shared = Recompute::full, grouped = Recompute::full,
                   quantized = Recompute::full;
  shared.partitioned = true, grouped.checkpoints = 2, quantized.fp8 = quantized.partitioned = true;
  const MeshLayout alone{}, tensor{.sizes = {.tensor = 2}}, pipeline{.sizes = {.pipeline = 2}};
  for (const auto& [layout, recompute, dtype, guarded] :
       {std::tuple(alone, each, DType::bf16, false),
        {alone, grouped, DType::f16, true},
        {tensor, shared, DType::bf16, false},
        {tensor, quantized, DType::bf16, true},
        {MeshLayout{.sizes = {.tensor = 2}, .sequence_parallel = true}, each, DType::f16, false},
        {pipeline, each, DType::bf16, false},
        {MeshLayout{.sizes = {.pipeline = 2}, .stage = 1, .schedule = PipelineSchedule::interleaved}, each, DType::f16,
         false},
        {sharded(2, 3), grouped, DType::bf16, false}}) {
    TrainingCase saving = on(layout, 2, "qk_norms").in(dtype);
    saving.recompute = recompute;
    const TrainingResult expected = saving.run();
    saving.recompute.tier.pool = Pool::file, saving.recompute.tier.folder = folder_.path().string();
    saving.guarded = guarded;
    expect_same_bits(saving.run(), expected);
  }
}

/// Units in tiles. A tied table; experts beside a shared one; biases and learned positions.
TEST_F(OffloadRuns, tiles_have_the_bits_of_tiles_in_memory_and_the_gradients_of_whole_units) {
  int i = 0;
  for (const char* model : {"qk_norms", "shared_experts", "biases"})
    for (const int ranks : {1, 2}) {
      const int turn = i++;
      if (!test::samples(turn + turn / 2, 2)) continue;  // each model has one of the numbers of ranks
      TrainingCase whole{.model = small_model(model), .mesh = sharded(ranks, 3), .steps = {0, 2}};
      for (const Recompute mode : {Recompute::none, Recompute::full}) {
        TrainingCase tiled = whole;
        tiled.recompute = mode, tiled.recompute.unit_tiles = 3;
        TrainingCase in_files = mode == Recompute::none ? with_gradients(tiled) : all_in_files(tiled);
        in_files.settings.offload_param.in_memory = 0;
        expect_same_bits(in_files.run(), tiled.run());
      }
      whole.accumulation = 2, whole.rows.of_step = 16;
      TrainingCase tiled = with_gradients(whole);
      tiled.recompute = Recompute::full, tiled.recompute.unit_tiles = 4;
      const test::WholeTensors expected = whole.gradients(), gradients = tiled.gradients();
      ASSERT_EQ(gradients.size(), expected.size());
      ASSERT_GT(gradients.size(), 10u);
      for (const auto& [name, values] : gradients) {
        double squares = 0, differences = 0;
        for (size_t i = 0; i < values.size(); ++i) {
          const double value = values[i], difference = value - static_cast<double>(expected.at(name).at(i));
          squares += value * value, differences += difference * difference;
        }
        EXPECT_LE(std::sqrt(differences), 1e-5 * std::sqrt(squares)) << whole.str() << ": " << name;
      }
    }
}

/// With the guarded device, wherever states, gradients and parameters are: the bits of the CPU without offload.
class GuardedOffload : public OffloadRuns {
 protected:
  static TrainingCase plain_on(const MeshLayout& layout) {
    return {.model = small_model("qk_norms", layout.layers()), .mesh = layout, .steps = {0, 2}};
  }
  TrainingCase on_host(TrainingCase each) const {
    each.settings.offload_optimizer = {.tier = {Pool::host}, .sub_group = 700};
    return each;
  }
  TrainingCase in_files(const TrainingCase& each) const {
    TrainingCase offloaded = states_in_files(each);
    offloaded.settings.offload_optimizer.writes_behind = true;
    offloaded.settings.offload_optimizer.buffers = 12;
    offloaded.settings.offload_optimizer.gradients_in_file = true;
    return offloaded;
  }
  static void expect_guarded(TrainingCase each, const TrainingResult& expected) {
    each.guarded = true;
    expect_same_bits(each.run(), expected);
  }
};

TEST_F(GuardedOffload, changes_no_bit_of_ranks_that_share_matrices) {
  for (const MeshLayout& layout :
       {MeshLayout{.sizes = {.shard = 2, .tensor = 2}, .stage = 2},
        MeshLayout{.sizes = {.shard = 2, .tensor = 2}, .sequence_parallel = true, .stage = 3}}) {
    const TrainingCase plain = plain_on(layout).in(DType::bf16);
    const TrainingResult expected = plain.run();
    for (const TrainingCase& states : {on_host(plain), in_files(plain)}) {
      expect_guarded(states, expected);
      if (layout.stage < 3) continue;
      TrainingCase beside = states;
      beside.settings.offload_param.tier.pool = Pool::host;
      expect_guarded(beside, expected);
      expect_guarded(parameters_in_files(states, 0), expected);
    }
  }
}

TEST_F(GuardedOffload, changes_no_bit_of_pipelines) {
  std::vector<MeshLayout> layouts{{.sizes = {.shard = 2, .pipeline = 2}, .stage = 2},
                                  {.sizes = {.tensor = 2, .pipeline = 2}, .stage = 1}};
  for (const PipelineSchedule schedule : test::kAllSchedules)
    layouts.push_back({.sizes = {.pipeline = 2}, .stage = 0, .schedule = schedule});
  int turn = 0;
  for (const MeshLayout& layout : layouts) {
    TrainingCase plain = plain_on(layout);
    plain.settings.dtype = DType::bf16;
    const TrainingResult expected = plain.run();
    for (const TrainingCase& each : {on_host(plain), in_files(plain), plain})
      if (test::samples(turn++, 2)) expect_guarded(each, expected);
  }
}

}  // namespace
}  // namespace nought::offload_test
