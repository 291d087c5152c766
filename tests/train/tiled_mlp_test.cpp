// Runs with MLPs in tiles of tokens train as those without: steps with unequal masks, accumulation and active clipping,
// in fp32, on any mesh.
#include "support/sweep.h"
#include "support/training_case.h"
#include <gtest/gtest.h>

namespace nought::tiled_mlp_test {
namespace {

using test::MeshLayout;
using test::TrainingCase;
using test::TrainingResult;

class TiledMlp : public ::testing::TestWithParam<const char*> {
 protected:
  /// Tiles of which the last one is shorter, whatever a rank has of 88 tokens; 0: none.
  static TrainingCase in_tiles(int64_t tiles, const MeshLayout& layout = {}, Recompute mode = Recompute::none) {
    TrainingCase each{.model = test::small_model(GetParam(), layout.layers()),
                      .mesh = layout,
                      .steps = {0, 3},
                      .rows = {.length = 11},
                      .recompute = mode};
    if (tiles > 0) each.recompute.mlp_tiles = tiles;
    return each;
  }
};

TEST_P(TiledMlp, steps_are_those_without_tiles_and_recomputation_changes_no_bit) {
  const TrainingResult none = in_tiles(5).run();
  expect_close(none, in_tiles(0).run());
  for (const Recompute mode : {Recompute::selective, Recompute::full})
    expect_same_bits(in_tiles(5, {}, mode).run(), none);
}

/// Tensor parallel with slices of the tokens and without, context parallel by each method, ZeRO 3, and pipelines whose
/// gradients of weights wait.
TEST_P(TiledMlp, steps_are_those_of_one_rank_on_meshes) {
  test::expect_like_one_rank(
      {{.sizes = {.tensor = 2}},
       {.sizes = {.tensor = 4}, .sequence_parallel = true},
       {.sizes = {.shard = 2, .tensor = 2}, .sequence_parallel = true, .stage = 3},
       {.sizes = {.context = 2}, .stage = 3, .method = ContextMethod::ring},
       {.sizes = {.context = 2, .tensor = 2}, .sequence_parallel = true, .stage = 1, .method = ContextMethod::gather},
       {.sizes = {.shard = 2, .context = 2}, .stage = 2, .method = ContextMethod::heads},
       {.sizes = {.pipeline = 2}, .schedule = PipelineSchedule::zbh1},
       {.sizes = {.shard = 2, .pipeline = 2}, .stage = 2, .schedule = PipelineSchedule::zbv}},
      [](const MeshLayout& layout) { return in_tiles(3, layout); });
}

/// The scales of the delayed recipe are those of all tiles; those of the current one are of each tile.
TEST_P(TiledMlp, bf16_and_fp8_follow_a_run_without_tiles) {
  int64_t turn = test::turn_of_structure(GetParam());  // every case, but not with every model
  for (const Fp8Scaling scaling : {Fp8Scaling::none, Fp8Scaling::delayed, Fp8Scaling::current})
    for (const int tensor : {1, 2}) {
      if (!test::samples(turn++, 2)) continue;
      const auto in = [&](int64_t tiles) {
        TrainingCase each = in_tiles(tiles, {.sizes = {.tensor = tensor}, .sequence_parallel = tensor > 1});
        each.settings.dtype = DType::bf16;
        each.fp8 = {.scaling = scaling, .history = 4};
        each.steps.end = 6;
        return each.run();
      };
      SCOPED_TRACE(fmt::format("fp8 {}, {} ranks", name_of(scaling), tensor));
      expect_losses_within(in(4), in(0), 2e-2);
    }
}

INSTANTIATE_TEST_SUITE_P(Families, TiledMlp, ::testing::Values("qk_norms", "shared_experts", "biases"),
                         test::name_of_structure);

}  // namespace
}  // namespace nought::tiled_mlp_test
