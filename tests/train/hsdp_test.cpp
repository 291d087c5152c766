// Replicas of a sharded model (HSDP, MiCS): they compute what one rank computes, and what ZeRO over all ranks does.
// mesh_runs_test holds that checkpoints go from any layout to any other.
#include "support/size.h"
#include "support/sweep.h"
#include "support/training_case.h"
#include <gtest/gtest.h>

namespace nought::hsdp_test {
namespace {

using test::MeshLayout;
using test::sharded;
using test::small_model;
using test::TrainingCase;
using test::TrainingResult;

MeshLayout two_of_two(int stage, bool experts = true) {
  return {.sizes = {.replicate = 2, .shard = 2, .expert = experts ? 2 : 1}, .stage = stage};
}

/// f32; 16-bit numbers with masters; sums that travel in 16 bits.
std::vector<TrainingCase> in_precisions(const std::string& model) {
  std::vector<TrainingCase> all(3, {.model = small_model(model), .steps = {0, 4}});
  all[1].settings.dtype = DType::bf16;
  all[2].settings.wire_dtype = DType::bf16;
  return all;
}

TEST(Hsdp, replicas_of_one_rank_have_the_bits_of_stage_0) {
  for (TrainingCase each : in_precisions("qk_norms")) {
    each.mesh = sharded(4, 0);
    const TrainingResult plain = each.run();
    for (const int stage : {0, 3}) {
      each.mesh = {.sizes = {.replicate = 4}, .stage = stage};
      expect_same_bits(each.run(), plain);
    }
  }
}

TEST(Hsdp, stages_that_reduce_alike_have_the_same_bits) {
  for (TrainingCase each : in_precisions("shared_experts")) {
    const auto at = [&](int stage) {
      each.mesh = two_of_two(stage);
      return each.run();
    };
    std::vector<TrainingResult> stages;
    for (const int stage : {0, 1, 2, 3}) stages.push_back(at(stage));
    expect_same_bits(stages[1], stages[0]);
    expect_same_bits(stages[3], stages[2]);
    for (const int stage : {0, 1, 2, 3})
      for (const bool buckets : {true, false}) {
        if (!test::samples(stage + buckets, 2)) continue;
        each.settings.reduce_bucket = each.settings.gather_bucket = buckets ? 20'000 : 0;
        each.settings.overlap = buckets;
        expect_same_bits(at(stage), stages[static_cast<size_t>(stage)]);
        each.settings.reduce_bucket = each.settings.gather_bucket = 0;
        each.settings.overlap = true;
      }
  }
}

NOUGHT_SIZE(long);
TEST(Hsdp, every_optimizer_updates_replicas_as_one_rank_does) {
  for (const Method& method : {Method(AdamOptions{.eps = 1e-4}), Method(MuonOptions{}), Method(LambOptions{})})
    for (const char* model : {"qk_norms", "shared_experts"}) {
      TrainingCase each{.model = small_model(model), .steps = {0, 8}};
      each.settings.optimizer.method = method;
      const TrainingResult alone = each.run();
      const bool experts = each.model.experts.has_value();
      std::vector<MeshLayout> meshes;
      for (const int stage : {0, 1, 2, 3}) meshes.push_back(two_of_two(stage, experts));
      meshes.push_back({.sizes = {.replicate = 2, .shard = 2, .tensor = 2, .expert = experts ? 2 : 1},
                        .sequence_parallel = true,
                        .stage = 3});
      expect_close_on(meshes, each, alone);
    }
}

/// They are cut into blocks at the borders of shards: two shards are what two ranks have.
TEST(Hsdp, states_of_8_bits_are_those_of_as_many_ranks_as_shards) {
  TrainingCase each{.model = small_model("shared_experts"), .mesh = sharded(2, 1), .steps = {0, 10}};
  each.settings.optimizer.state_block = 64;
  const TrainingResult two = each.run();
  each.mesh = two_of_two(1, false);
  expect_losses_within(each.run(), two, 1e-2);
}

TEST(Hsdp, gathers_by_hosts_have_the_bits_of_gathers_over_all_ranks) {
  for (const GridSizes& sizes : {GridSizes{.shard = 4}, GridSizes{.replicate = 2, .shard = 4, .expert = 2}}) {
    TrainingCase each{.model = small_model("shared_experts"), .mesh = {.sizes = sizes, .stage = 3}, .steps = {0, 3}};
    const TrainingResult plain = each.run();
    each.mesh.sizes.host_ranks = 2;
    expect_same_bits(each.run(), plain);
  }
}

}  // namespace
}  // namespace nought::hsdp_test
