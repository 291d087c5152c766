// Runs with MLPs in tiles of tokens train as those without: 30 steps with unequal masks, accumulation and active
// clipping, in fp32, on any mesh.
#include "support/mesh_runs.h"
#include <gtest/gtest.h>

namespace nought::tiled_mlp_test {
namespace {

using test::Course;
using test::CourseOptions;
using test::expect_close;
using test::Family;
using test::MeshLayout;
using test::train_on;

constexpr int64_t kSteps = 30;
constexpr test::MeshRows kRows{.length = 11};

/// Tiles of which the last one is shorter, whatever a rank has of 88 tokens.
CourseOptions in_tiles(int64_t tiles, Recompute mode = Recompute::none) {
  CourseOptions options{.recompute = mode, .rows = kRows};
  options.recompute.mlp_tiles = tiles;
  return options;
}

class TiledMlp : public ::testing::TestWithParam<Family> {
 protected:
  const ModelConfig config_ = GetParam().config(2);
};

TEST_P(TiledMlp, thirty_steps_are_those_without_tiles_in_every_recompute_mode) {
  const Course whole = train_on({}, config_, {0, kSteps}, {.rows = kRows});
  Course none;
  for (const Recompute mode : {Recompute::none, Recompute::selective, Recompute::full}) {
    SCOPED_TRACE(name_of(mode));
    const Course tiled = train_on({}, config_, {0, kSteps}, in_tiles(5, mode));
    expect_close(tiled, whole);
    if (mode == Recompute::none) none = tiled;
    EXPECT_EQ(tiled.losses, none.losses);
    EXPECT_EQ(tiled.weights, none.weights) << "to the bit";
  }
}

/// Tensor parallel with slices of the tokens and without, context parallel by each method, ZeRO 3, and pipelines whose
/// gradients of weights wait.
TEST_P(TiledMlp, thirty_steps_are_those_of_one_rank_on_meshes) {
  const Course whole = train_on({}, config_, {0, kSteps}, {.rows = kRows});
  const std::vector<MeshLayout> meshes{
      {.sizes = {.tensor = 2}},
      {.sizes = {.tensor = 4}, .sequence_parallel = true},
      {.sizes = {.shard = 2, .tensor = 2}, .sequence_parallel = true, .stage = 3},
      {.sizes = {.context = 2}, .stage = 3, .method = ContextMethod::ring},
      {.sizes = {.context = 2, .tensor = 2}, .sequence_parallel = true, .stage = 1, .method = ContextMethod::gather},
      {.sizes = {.shard = 2, .context = 2}, .stage = 2, .method = ContextMethod::heads},
      {.sizes = {.pipeline = 2}, .schedule = PipelineSchedule::zbh1},
      {.sizes = {.shard = 2, .pipeline = 2}, .stage = 2, .schedule = PipelineSchedule::zbv}};
  for (const MeshLayout& layout : meshes) {
    SCOPED_TRACE(layout.str());
    const ModelConfig config = GetParam().config(layout.layers());
    const Course alone = layout.layers() == 2 ? whole : train_on({}, config, {0, kSteps}, {.rows = kRows});
    expect_close(train_on(layout, config, {0, kSteps}, in_tiles(3)), alone);
  }
}

/// The scales of the delayed recipe are those of all tiles; those of the current one are of each tile.
TEST_P(TiledMlp, bf16_and_fp8_follow_a_run_without_tiles) {
  for (const Fp8Scaling scaling : {Fp8Scaling::none, Fp8Scaling::delayed, Fp8Scaling::current}) {
    CourseOptions plain{.fp8 = {.scaling = scaling, .history = 4}, .rows = kRows};
    plain.sharding.dtype = DType::bf16;
    CourseOptions tiled = plain;
    tiled.recompute.mlp_tiles = 4;
    for (const int tensor : {1, 2}) {
      const MeshLayout layout{.sizes = {.tensor = tensor}, .sequence_parallel = tensor > 1};
      SCOPED_TRACE(fmt::format("fp8 {}, {} ranks", name_of(scaling), tensor));
      const Course whole = train_on(layout, config_, {0, kSteps}, plain);
      const Course course = train_on(layout, config_, {0, kSteps}, tiled);
      for (size_t i = 0; i < kSteps; ++i) EXPECT_NEAR(course.losses[i], whole.losses[i], 2e-2) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TiledMlp,
                         ::testing::Values(Family{"dense", test::dense_mesh_model},
                                           Family{"experts", test::expert_mesh_model},
                                           Family{"biases", test::biased_mesh_model}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace nought::tiled_mlp_test
