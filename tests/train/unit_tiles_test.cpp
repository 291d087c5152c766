// Runs whose Units have tiles train as those without: 30 steps with unequal masks, accumulation and active clipping;
// their stages agree to the bit, and checkpoints and exports do not know of tiles.
#include <filesystem>

#include "support/mesh_runs.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>

#include "nought/io/files.h"
#include "nought/train/hf_folder.h"

namespace nought::unit_tiles_test {
namespace {

using test::Course;
using test::CourseOptions;
using test::expect_close;
using test::Family;
using test::MeshLayout;
using test::train_on;

constexpr int64_t kSteps = 30, kMeshSteps = 12;

CourseOptions in_tiles(int64_t tiles, Recompute mode = Recompute::none) {
  CourseOptions options{.recompute = mode};
  options.recompute.unit_tiles = tiles;
  return options;
}

void expect_same(const Course& a, const Course& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
  EXPECT_TRUE(a.weights == b.weights);
}

/// All experts of a layer lie in one tensor, gate and up in turn, with biases.
ModelConfig fused_experts(int layers) {
  return ModelConfig::from_json(
      {{"model_type", "gpt_oss"},
       {"vocab_size", test::kMeshVocabulary},
       {"hidden_size", 32},
       {"intermediate_size", 16},
       {"num_hidden_layers", layers},
       {"num_attention_heads", 4},
       {"num_key_value_heads", 2},
       {"head_dim", 8},
       {"initializer_range", test::kMeshInit},
       {"num_local_experts", 4},
       {"num_experts_per_tok", 2},
       {"sliding_window", 64},
       {"layer_types", std::vector<std::string>(static_cast<size_t>(layers), "full_attention")},
       {"rope_theta", 10000.0},
       {"max_position_embeddings", 16}});
}

/// Norms behind the layers, whose inputs a recomputed block needs; logits are capped.
ModelConfig norms_behind(int layers) {
  return ModelConfig::from_json({{"model_type", "gemma2"},
                                 {"vocab_size", test::kMeshVocabulary},
                                 {"hidden_size", 32},
                                 {"intermediate_size", 48},
                                 {"num_hidden_layers", layers},
                                 {"num_attention_heads", 4},
                                 {"num_key_value_heads", 2},
                                 {"head_dim", 8},
                                 {"query_pre_attn_scalar", 8},
                                 {"sliding_window", 64},
                                 {"final_logit_softcapping", 3.0},
                                 {"attn_logit_softcapping", 20.0},
                                 {"initializer_range", test::kMeshInit},
                                 {"max_position_embeddings", 16}});
}

class UnitTiles : public ::testing::TestWithParam<Family> {
 protected:
  const ModelConfig config_ = GetParam().config(2);
};

TEST_P(UnitTiles, thirty_steps_are_those_without_tiles_in_every_recompute_mode) {
  const Course whole = train_on({}, config_, {0, kSteps});
  Course none;
  for (const Recompute mode : {Recompute::none, Recompute::selective, Recompute::full}) {
    SCOPED_TRACE(name_of(mode));
    const Course tiled = train_on({}, config_, {0, kSteps}, in_tiles(4, mode));
    expect_close(tiled, whole);
    if (mode == Recompute::none) none = tiled;
    expect_same(tiled, none);
  }
}

/// Stages 2 and 3 round once in each of several micro-batches, and stages 0 and 1 once in a step.
TEST_P(UnitTiles, stages_agree_bit_for_bit) {
  for (const int ranks : {1, 2, 4}) {
    const auto course = [&](int stage) {
      return train_on({.sizes = {.shard = ranks}, .stage = stage}, config_, {0, 6}, in_tiles(3));
    };
    SCOPED_TRACE(ranks);
    expect_same(course(1), course(0));
    expect_same(course(3), course(2));
  }
}

TEST_P(UnitTiles, steps_are_those_of_one_rank_on_meshes) {
  const Course whole = train_on({}, config_, {0, kMeshSteps});
  const std::vector<MeshLayout> meshes{
      {.sizes = {.tensor = 2}},
      {.sizes = {.shard = 2, .tensor = 2}, .sequence_parallel = true, .stage = 3},
      {.sizes = {.context = 2}, .stage = 3, .method = ContextMethod::ring},
      {.sizes = {.replicate = 2, .shard = 2}, .stage = 3},
      {.sizes = {.pipeline = 2}, .schedule = PipelineSchedule::zbh1},
      {.sizes = {.shard = 2, .pipeline = 2}, .stage = 2, .schedule = PipelineSchedule::zbv}};
  for (const MeshLayout& layout : meshes) {
    SCOPED_TRACE(layout.str());
    const ModelConfig config = GetParam().config(layout.layers());
    const Course alone = layout.layers() == 2 ? whole : train_on({}, config, {0, kMeshSteps});
    expect_close(train_on(layout, config, {0, kMeshSteps}, in_tiles(3)), alone);
  }
}

TEST_P(UnitTiles, bf16_follows_a_run_without_tiles) {
  const MeshLayout layout{.sizes = {.shard = 2}, .stage = 3};
  CourseOptions plain, tiled = in_tiles(4, Recompute::full);
  plain.sharding.dtype = tiled.sharding.dtype = DType::bf16;
  const Course whole = train_on(layout, config_, {0, kMeshSteps}, plain);
  const Course course = train_on(layout, config_, {0, kMeshSteps}, tiled);
  for (size_t i = 0; i < kMeshSteps; ++i) EXPECT_NEAR(course.losses[i], whole.losses[i], 2e-2) << i;
}

/// As text samples of a run do.
TEST_P(UnitTiles, logits_of_generation_are_those_of_whole_units) {
  const auto logits_of = [&](int64_t tiles) {
    std::vector<float> logits;
    const MeshLayout layout{.sizes = {.shard = 2}, .stage = 3};
    run_ranks(2, [&](Communicator& world) {
      RecomputeOptions recompute;
      recompute.unit_tiles = tiles;
      test::Sharing rank = layout.rank(world, config_, {}, {}, recompute);
      rank.model.load(InitialState(3));
      DecoderCache cache = rank.decoder.make_cache(rank.context, 12, DType::f32);
      const std::vector<int32_t> prompt{5, 60, 17, 0, 2}, next{33};
      rank.decoder.next_logits(rank.context, std::array{NextTokens{0, prompt}}, cache);
      const Tensor last = rank.decoder.next_logits(rank.context, std::array{NextTokens{0, next}}, cache);
      if (world.rank() == 0) logits = last.to_vector<float>();
    });
    return logits;
  };
  const std::vector<float> whole = logits_of(1), tiled = logits_of(3);
  ASSERT_EQ(tiled.size(), whole.size());
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(tiled[i], whole[i], 1e-5) << i;
}

/// What is not trained has no gradients in any tile.
TEST_P(UnitTiles, frozen_matrices_have_tiles_too) {
  const auto norms_of = [&](int64_t tiles) {
    std::vector<double> norms;
    run_ranks(2, [&](Communicator& world) {
      RecomputeOptions recompute;
      recompute.unit_tiles = tiles;
      const Mesh mesh(world, GridSizes{.shard = 2});
      Decoder decoder(config_, recompute, {}, ModelRanks(mesh));
      for (const auto& unit : decoder.units())
        unit->choose_trained([](const Parameter& each) { return each.role == ParameterRole::norm; });
      const Context context = Context::cpu();
      ShardedModel model(context, mesh, decoder, {.policy = Policy::stage(3)});
      model.load(InitialState(3));
      Engine engine(model);
      for (int64_t step = 0; step < 3; ++step) {
        const std::vector<Batch> batches{test::mesh_rows(*context.memory, config_, step, 0, world.rank(), 2)};
        const double norm = engine.step(batches, 30, 2e-3, 1).grad_norm;
        if (world.rank() == 0) norms.push_back(norm);
      }
    });
    return norms;
  };
  const std::vector<double> whole = norms_of(1), tiled = norms_of(3);
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(tiled[i], whole[i], 1e-5 * whole[i]);
}

/// Each continues what the one before it saved: whole, 3 tiles at stage 3, 4 tiles of one rank, whole over ranks that
/// share matrices.
TEST_P(UnitTiles, checkpoints_are_resumed_with_any_number_of_tiles) {
  const Course whole = train_on({}, config_, {0, 8});
  const test::TempFolder folders[4];
  const MeshLayout four{.sizes = {.shard = 4}, .stage = 3}, sharing{.sizes = {.tensor = 2}};
  const std::vector<std::pair<MeshLayout, int64_t>> runs{{{}, 1}, {four, 3}, {{}, 4}, {sharing, 1}};
  for (size_t i = 0; i < runs.size(); ++i) {
    CourseOptions options = in_tiles(runs[i].second);
    if (i > 0) options.resumed = folders[i - 1].path();
    options.saved = folders[i].path();
    const auto begin = static_cast<int64_t>(2 * i);
    const Course course = train_on(runs[i].first, config_, {begin, begin + 2}, options);
    for (size_t step = 0; step < 2; ++step) EXPECT_NEAR(course.losses[step], whole.losses[2 * i + step], 1e-5);
    if (i < 3) continue;
    for (const auto& [name, values] : course.weights)
      for (size_t k = 0; k < values.size(); ++k) ASSERT_NEAR(values[k], whole.weights.at(name)[k], 1e-5) << name;
  }
}

/// Without an update between them, files know nothing of tiles: neither a checkpoint's values nor an export's bytes.
TEST_P(UnitTiles, exports_are_those_of_whole_units) {
  const auto exported = [&](const MeshLayout& layout, int64_t tiles) {
    const test::TempFolder folder;
    run_ranks(layout.ranks(), [&](Communicator& world) {
      RecomputeOptions recompute;
      recompute.unit_tiles = tiles;
      test::Sharing rank = layout.rank(world, config_, {}, {}, recompute);
      rank.model.load(InitialState(3));
      export_hf_folder(rank.model, config_, {}, folder.path(), 20'000);
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
                         ::testing::Values(Family{"dense", test::dense_mesh_model},
                                           Family{"experts", test::expert_mesh_model},
                                           Family{"biases", test::biased_mesh_model},
                                           Family{"fused_experts", fused_experts},
                                           Family{"norms_behind", norms_behind}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace nought::unit_tiles_test
