// Replicas of a sharded model (HSDP, MiCS): they compute what one rank computes, and what ZeRO over all ranks does.
#include "support/mesh_runs.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>

namespace nought::hsdp_test {
namespace {

using test::Course;
using test::CourseOptions;
using test::expect_close;
using test::MeshLayout;
using test::train_on;

constexpr GridSizes kTwoOfTwo{.replicate = 2, .shard = 2};

void expect_same_bits(const Course& a, const Course& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
  EXPECT_EQ(a.weights, b.weights);
}

/// f32; 16-bit numbers with masters; sums that travel in 16 bits.
std::vector<CourseOptions> precisions() {
  std::vector<CourseOptions> all(3);
  all[1].sharding.dtype = DType::bf16;
  all[2].sharding.wire_dtype = DType::bf16;
  return all;
}

TEST(Hsdp, replicas_of_one_rank_have_the_bits_of_stage_0) {
  const ModelConfig config = test::dense_mesh_model();
  for (const CourseOptions& options : precisions()) {
    const Course plain = train_on({.sizes = {.shard = 4}, .stage = 0}, config, {0, 8}, options);
    for (const int stage : {0, 3})
      expect_same_bits(train_on({.sizes = {.replicate = 4}, .stage = stage}, config, {0, 8}, options), plain);
  }
}

TEST(Hsdp, stages_that_reduce_alike_have_the_same_bits) {
  const ModelConfig config = test::expert_mesh_model();
  GridSizes sizes = kTwoOfTwo;
  sizes.expert = 2;
  const auto at = [&](int stage, const CourseOptions& options) {
    return train_on({.sizes = sizes, .stage = stage}, config, {0, 5}, options);
  };
  CourseOptions in_buckets, in_turn;
  in_buckets.sharding.reduce_bucket = in_buckets.sharding.gather_bucket = 20'000;
  in_turn.sharding.overlap = false;
  for (const CourseOptions& options : precisions()) {
    expect_same_bits(at(1, options), at(0, options));
    expect_same_bits(at(3, options), at(2, options));
  }
  for (const int stage : {0, 1, 2, 3}) {
    const Course plain = at(stage, {});
    expect_same_bits(at(stage, in_buckets), plain);
    expect_same_bits(at(stage, in_turn), plain);
  }
}

TEST(Hsdp, thirty_steps_are_those_of_one_rank) {
  for (const ModelConfig& config : {test::dense_mesh_model(), test::expert_mesh_model()}) {
    const Course alone = train_on({}, config, {0, 30});
    for (const int stage : {0, 1, 2, 3}) {
      GridSizes sizes = kTwoOfTwo;
      sizes.expert = config.experts ? 2 : 1;
      SCOPED_TRACE(fmt::format("{}, stage {}", config.family, stage));
      expect_close(train_on({.sizes = sizes, .stage = stage}, config, {0, 30}), alone);
    }
    GridSizes beside{.replicate = 2, .shard = 2, .tensor = 2, .expert = config.experts ? 2 : 1, .expert_tensor = 2};
    expect_close(train_on({.sizes = beside, .sequence_parallel = true, .stage = 3}, config, {0, 30}), alone);
  }
}

TEST(Hsdp, every_optimizer_updates_replicas_alike) {
  const ModelConfig config = test::expert_mesh_model();
  CourseOptions muon, lamb, bf16;
  muon.sharding.optimizer.method = MuonOptions{};
  lamb.sharding.optimizer.method = LambOptions{};
  for (const auto& [name, options] : {std::pair("muon", muon), {"lamb", lamb}}) {
    SCOPED_TRACE(name);
    const Course alone = train_on({}, config, {0, 10}, options);
    for (const int stage : {0, 1, 3}) {
      const MeshLayout layout{.sizes = {.replicate = 2, .shard = 2, .expert = 2}, .stage = stage};
      expect_close(train_on(layout, config, {0, 10}, options), alone);
    }
  }
  // States of 8 bits are cut into blocks at the borders of shards: two shards are what two ranks have.
  CourseOptions narrow;
  narrow.sharding.optimizer.state_block = 64;
  const Course two = train_on({.sizes = {.shard = 2}, .stage = 1}, config, {0, 10}, narrow);
  const Course four = train_on({.sizes = kTwoOfTwo, .stage = 1}, config, {0, 10}, narrow);
  for (size_t i = 0; i < two.losses.size(); ++i) EXPECT_NEAR(four.losses[i], two.losses[i], 1e-2) << i;
}

TEST(Hsdp, checkpoints_go_from_any_layout_to_any_other) {
  const ModelConfig config = test::expert_mesh_model();
  constexpr int64_t kEach = 2;
  const std::vector<MeshLayout> chain{
      {.sizes = {.shard = 4}, .stage = 3},     {.sizes = {.replicate = 2, .shard = 2, .expert = 2}, .stage = 3},
      {.sizes = {.replicate = 4}, .stage = 1}, {.sizes = {.shard = 4, .expert = 4}, .stage = 2},
      {.sizes = kTwoOfTwo, .stage = 0},        {}};
  const auto count = static_cast<int64_t>(chain.size());
  const Course alone = train_on({}, config, {0, kEach * count});
  const test::TempFolder folder;
  for (int64_t i = 0; i < count; ++i) {
    const MeshLayout& layout = chain[static_cast<size_t>(i)];
    SCOPED_TRACE(layout.str());
    const Course part = train_on(layout, config, {i * kEach, (i + 1) * kEach},
                                 {.resumed = i == 0 ? "" : folder.path().string(), .saved = folder.path().string()});
    for (int64_t step = 0; step < kEach; ++step)
      EXPECT_NEAR(part.losses[static_cast<size_t>(step)], alone.losses[static_cast<size_t>(i * kEach + step)], 1e-5);
    if (i + 1 == count) expect_close(part, alone, static_cast<size_t>(i * kEach));
  }
}

TEST(Hsdp, gathers_by_hosts_have_the_bits_of_gathers_over_all_ranks) {
  const ModelConfig config = test::expert_mesh_model();
  for (GridSizes sizes : {GridSizes{.shard = 4}, GridSizes{.replicate = 2, .shard = 4, .expert = 2}}) {
    const Course plain = train_on({.sizes = sizes, .stage = 3}, config, {0, 4});
    sizes.host_ranks = 2;
    expect_same_bits(train_on({.sizes = sizes, .stage = 3}, config, {0, 4}), plain);
  }
}

}  // namespace
}  // namespace nought::hsdp_test
