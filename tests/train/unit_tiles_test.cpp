// Runs whose Units have tiles train as those without: steps with unequal masks, accumulation and active clipping; their
// stages agree to the bit, and checkpoints and exports do not know of tiles.
#include <filesystem>

#include "support/temp_folder.h"
#include "support/training_case.h"
#include <gtest/gtest.h>

#include "nought/io/files.h"
#include "nought/weights/hf_folder.h"

namespace nought::unit_tiles_test {
namespace {

using test::MeshLayout;
using test::sharded;
using test::TrainingCase;
using test::TrainingRank;
using test::TrainingResult;

class UnitTiles : public ::testing::TestWithParam<const char*> {
 protected:
  static TrainingCase in_tiles(int64_t tiles, const MeshLayout& layout = {}, Recompute mode = Recompute::none) {
    TrainingCase each{
        .model = test::small_model(GetParam(), layout.layers()), .mesh = layout, .steps = {0, 3}, .recompute = mode};
    each.recompute.unit_tiles = tiles;
    return each;
  }
  const TrainingCase whole_ = in_tiles(1);
};

TEST_P(UnitTiles, steps_are_those_without_tiles_and_recomputation_changes_no_bit) {
  const TrainingResult none = in_tiles(4).run();
  expect_close(none, whole_.run());
  for (const Recompute mode : {Recompute::selective, Recompute::full})
    expect_same_bits(in_tiles(4, {}, mode).run(), none);
}

/// Stages 2 and 3 round once in each of several micro-batches, and stages 0 and 1 once in a step.
TEST_P(UnitTiles, stages_agree_bit_for_bit) {
  for (const int ranks : {2, 4})
    for (const int stage : {0, 2}) {
      expect_same_bits(in_tiles(3, sharded(ranks, stage + 1)).run(), in_tiles(3, sharded(ranks, stage)).run());
    }
}

TEST_P(UnitTiles, steps_are_those_of_one_rank_on_meshes) {
  test::expect_like_one_rank({{.sizes = {.tensor = 2}},
                              {.sizes = {.shard = 2, .tensor = 2}, .sequence_parallel = true, .stage = 3},
                              {.sizes = {.context = 2}, .stage = 3, .method = ContextMethod::ring},
                              {.sizes = {.replicate = 2, .shard = 2}, .stage = 3},
                              {.sizes = {.pipeline = 2}, .schedule = PipelineSchedule::zbh1},
                              {.sizes = {.shard = 2, .pipeline = 2}, .stage = 2, .schedule = PipelineSchedule::zbv}},
                             [](const MeshLayout& layout) { return in_tiles(3, layout); });
}

TEST_P(UnitTiles, bf16_follows_a_run_without_tiles) {
  TrainingCase plain = in_tiles(1, sharded(2, 3)), tiled = in_tiles(4, sharded(2, 3), Recompute::full);
  plain.settings.dtype = tiled.settings.dtype = DType::bf16;
  plain.steps.end = tiled.steps.end = 6;
  expect_losses_within(tiled.run(), plain.run(), 2e-2);
}

/// As text samples of a run do.
TEST_P(UnitTiles, logits_of_generation_are_those_of_whole_units) {
  const auto logits_of = [](int64_t tiles) {
    return test::WholeTensors{{"logits", in_tiles(tiles, sharded(2, 3)).cached_logits()}};
  };
  test::expect_close(logits_of(3), logits_of(1), 1e-5);
}

/// What is not trained has no gradients in any tile.
TEST_P(UnitTiles, frozen_matrices_have_tiles_too) {
  const auto norms_of = [&](int64_t tiles) {
    TrainingCase each = in_tiles(tiles, sharded(2, 3));
    each.clipping = 1;
    each.prepare = [](Decoder& decoder) {
      for (const auto& unit : decoder.units())
        unit->choose_trained([](const Parameter& of) { return of.role == ParameterRole::norm; });
    };
    return each.run().norms;
  };
  const std::vector<double> whole = norms_of(1), tiled = norms_of(3);
  ASSERT_EQ(tiled.size(), 3u);
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(tiled[i], whole[i], 1e-5 * whole[i]);
}

/// Each continues what the one before it saved: whole, 3 tiles at stage 3, 4 tiles of one rank, whole over ranks that
/// share matrices.
TEST_P(UnitTiles, checkpoints_are_resumed_with_any_number_of_tiles) {
  TrainingCase alone = whole_;
  alone.steps.end = 4;
  const TrainingResult whole = alone.run();
  const test::TempFolder folders[4];
  std::vector<TrainingCase> chain{whole_, in_tiles(3, sharded(4, 3)), in_tiles(4),
                                  in_tiles(1, {.sizes = {.tensor = 2}})};
  for (size_t i = 0; i < chain.size(); ++i) {
    TrainingCase& each = chain[i];
    if (i > 0) each.resumed = folders[i - 1].path();
    each.saved = folders[i].path();
    each.steps = {static_cast<int64_t>(i), static_cast<int64_t>(i) + 1};
    const TrainingResult result = each.run();
    EXPECT_NEAR(result.losses[0], whole.losses[i], 1e-5);
    if (i == 3) test::expect_close(result.weights, whole.weights, 1e-5);
  }
}

/// Without an update between them, files know nothing of tiles: neither a checkpoint's values nor an export's bytes.
TEST_P(UnitTiles, exports_are_those_of_whole_units) {
  const auto exported = [&](const MeshLayout& layout, int64_t tiles) {
    const test::TempFolder folder;
    in_tiles(tiles, layout).on_ranks([&](TrainingRank& rank) {
      export_hf_folder(rank.model, rank.of.model, {}, folder.path(), 20'000);
    });
    std::map<std::string, std::string> files;
    for (const auto& file : std::filesystem::directory_iterator(folder.path()))
      files[file.path().filename().string()] = read_bytes(file.path());
    return files;
  };
  const auto whole = exported({}, 1);
  EXPECT_GT(whole.size(), 4u);
  EXPECT_TRUE(exported({}, 4) == whole);
  EXPECT_TRUE(exported({.sizes = {.shard = 2, .tensor = 2}, .stage = 3}, 3) == whole);
}

INSTANTIATE_TEST_SUITE_P(Families, UnitTiles,
                         ::testing::Values("qk_norms", "shared_experts", "biases", "sinks", "post_norms"),
                         test::name_of_structure);

}  // namespace
}  // namespace nought::unit_tiles_test
