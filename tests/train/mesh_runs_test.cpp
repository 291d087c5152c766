// Every mesh computes what one rank computes: 30 steps with unequal masks, accumulation and active clipping, in fp32.
#include "support/mesh_runs.h"

#include <map>
#include <set>

#include "support/golden.h"
#include "support/sweep.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>

#include "nought/train/hf_folder.h"

namespace nought::mesh_runs_test {
namespace {

using test::Course;
using test::expect_close;
using test::MeshLayout;
using test::runs_everything;
using test::train_on;

constexpr int64_t kSteps = 30;

struct Family {
  const char* name;
  ModelConfig (*config)(int layers);
  int ranks;  // of the meshes in the suite
};
std::ostream& operator<<(std::ostream& out, const Family& family) { return out << family.name; }

/// Meshes of tests that are not about every one.
std::vector<MeshLayout> some_meshes(bool experts) {
  const int two = experts ? 2 : 1;
  return {
      {.sizes = {.shard = 2, .tensor = 2, .expert = two, .expert_tensor = 2}},
      {.sizes = {.shard = 2, .tensor = 2, .expert = two, .expert_tensor = 2}, .sequence_parallel = true, .stage = 3},
      {.sizes = {.shard = 4, .expert = experts ? 4 : 1}, .stage = 2},
      {.sizes = {.tensor = 4, .expert_tensor = 4}, .sequence_parallel = true},
      {.sizes = {.tensor = 2, .pipeline = 2, .expert_tensor = 2}, .sequence_parallel = true, .stage = 1},
      {.sizes = {.shard = 2, .pipeline = 2, .expert = two}, .stage = 3, .schedule = PipelineSchedule::zbv}};
}

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

class MeshRuns : public ::testing::TestWithParam<Family> {
 protected:
  const ModelConfig config_ = GetParam().config(2);
  const bool experts_ = config_.experts.has_value();
};

/// The suite has every mesh of so many ranks once; NOUGHT_LONG those of 4 and of 8 at every stage, with every schedule.
TEST_P(MeshRuns, thirty_steps_are_those_of_one_rank_on_every_mesh) {
  std::vector<MeshLayout> layouts = test::sampled_meshes(GetParam().ranks, experts_);
  if (runs_everything()) {
    layouts = test::every_mesh(4, experts_);
    const std::vector<MeshLayout> of_eight = test::every_mesh(8, experts_);
    if (GetParam().ranks == 8) layouts.insert(layouts.end(), of_eight.begin(), of_eight.end());
  }
  std::map<int, Course> alone;  // by the layers of the model
  for (const MeshLayout& layout : layouts) {
    SCOPED_TRACE(layout.str());
    const ModelConfig config = GetParam().config(layout.layers());
    if (!alone.contains(layout.layers())) alone[layout.layers()] = train_on({}, config, {0, kSteps});
    expect_close(train_on(layout, config, {0, kSteps}), alone.at(layout.layers()));
  }
}

/// A chain of meshes, each of which continues what the one before it has saved.
TEST_P(MeshRuns, a_checkpoint_of_one_mesh_is_continued_by_another) {
  constexpr int64_t kEach = 2;
  const bool experts = experts_;
  const std::vector<MeshLayout> chain{
      {.sizes = {.shard = 2, .tensor = 2, .expert = experts ? 2 : 1, .expert_tensor = 2}, .stage = 3},
      {.sizes = {.tensor = 4, .expert_tensor = 4}, .sequence_parallel = true, .stage = 0},
      {.sizes = {.shard = 2, .pipeline = 2, .expert = experts ? 2 : 1}, .stage = 2, .schedule = PipelineSchedule::zbv},
      {.sizes = {.shard = 4, .expert = experts ? 4 : 1}, .stage = 1},
      {.sizes = {.tensor = 2, .pipeline = 4, .expert_tensor = 2}, .stage = 1},
      {.sizes = {.replicate = 2, .shard = 2, .pipeline = 2, .expert = experts ? 2 : 1}, .stage = 3},
      {.sizes = {.replicate = 4, .tensor = 2, .expert_tensor = 2}, .stage = 0},
      {.sizes = {}, .stage = 0},
      {.sizes = {.shard = 4, .expert = experts ? 2 : 1}, .stage = 3},
      {.sizes = {.shard = 4, .tensor = 2, .expert = experts ? 2 : 1, .expert_tensor = 2},
       .sequence_parallel = true,
       .stage = 2}};
  const Course alone = train_on({}, config_, {0, kEach * static_cast<int64_t>(chain.size())});
  const test::TempFolder folder;
  for (size_t i = 0; i < chain.size(); ++i) {
    SCOPED_TRACE(chain[i].str());
    const int64_t begin = kEach * static_cast<int64_t>(i);
    const Course part = train_on(chain[i], config_, {begin, begin + kEach},
                                 {.resumed = i == 0 ? "" : folder.path().string(), .saved = folder.path().string()});
    for (size_t step = 0; step < part.losses.size(); ++step)
      EXPECT_NEAR(part.losses[step], alone.losses[static_cast<size_t>(begin) + step], 1e-5);
    if (i + 1 == chain.size()) {
      for (const auto& [name, values] : part.weights)
        for (size_t j = 0; j < values.size(); ++j) ASSERT_NEAR(values[j], alone.weights.at(name)[j], 1e-5) << name;
    }
  }
}

TEST_P(MeshRuns, the_same_mesh_resumes_bit_for_bit) {
  const MeshLayout layout{.sizes = {.shard = 2, .tensor = 2, .expert = experts_ ? 2 : 1, .expert_tensor = 2},
                          .sequence_parallel = true,
                          .stage = 3};
  const test::TempFolder folder;
  const Course whole = train_on(layout, config_, {0, 6});
  train_on(layout, config_, {0, 3}, {.saved = folder.path().string()});
  EXPECT_EQ(train_on(layout, config_, {3, 6}, {.resumed = folder.path().string()}).weights, whole.weights);
}

TEST_P(MeshRuns, muon_sees_whole_matrices) {
  test::CourseOptions options;
  options.sharding.optimizer.method = MuonOptions{.others = {.eps = 1e-4}};  // see CourseOptions
  const Course alone = train_on({}, config_, {0, 10}, options);
  for (const MeshLayout& layout : some_meshes(experts_)) {
    SCOPED_TRACE(layout.str());
    expect_close(train_on(layout, config_, {0, 10}, options), alone);
  }
}

/// In bf16, and with factors of 8 bits, the losses are not those of one rank to the last digit, but the model learns
/// the same.
TEST_P(MeshRuns, bf16_and_fp8_follow_one_rank) {
  test::CourseOptions options;
  options.sharding.dtype = DType::bf16;
  for (const Fp8Scaling scaling : {Fp8Scaling::none, Fp8Scaling::delayed, Fp8Scaling::current}) {
    options.fp8 = {.scaling = scaling, .history = 4};
    const Course alone = train_on({}, config_, {0, kSteps}, options);
    for (const bool slices : {false, true}) {
      SCOPED_TRACE(fmt::format("fp8 {}, slices {}", name_of(scaling), slices));
      const GridSizes sizes{.shard = 2, .tensor = 2, .expert = experts_ ? 2 : 1};
      const Course shared = train_on({.sizes = sizes, .sequence_parallel = slices}, config_, {0, kSteps}, options);
      for (size_t i = 0; i < kSteps; ++i) EXPECT_NEAR(shared.losses[i], alone.losses[i], 2e-2) << i;
    }
  }
}

double evaluated(const MeshLayout& layout, const ModelConfig& config) {
  double loss = 0;
  run_ranks(layout.ranks(), [&](Communicator& world) {
    test::Sharing rank = layout.rank(world, config);
    rank.model.load(InitialState(3));
    const Communicator& samples = rank.mesh.group(Group::samples);
    const Batch rows = test::mesh_rows(*rank.context.memory, config, 0, 0, samples.rank(), samples.size());
    const double targets = CrossEntropyObjective().weight(test::mesh_rows(*rank.context.memory, config, 0, 0, 0, 1));
    Engine engine(rank.model);
    engine.set_schedule(schedule_at(rank.mesh, layout.pipeline()));
    const double own = engine.evaluate(std::span(&rows, 1), targets);
    if (world.rank() == world.size() - 1) loss = own;
  });
  return loss;
}

TEST_P(MeshRuns, an_evaluation_has_the_loss_of_one_rank) {
  const double alone = evaluated({}, config_);
  for (const MeshLayout& layout : some_meshes(experts_))
    EXPECT_NEAR(evaluated(layout, config_), alone, 1e-6) << layout.str();
}

TEST_P(MeshRuns, logits_with_a_cache_are_those_of_one_rank) {
  const std::vector<float> alone = test::cached_logits({}, config_);
  ASSERT_EQ(alone.size(), static_cast<size_t>(test::kMeshVocabulary));
  for (const MeshLayout& layout : some_meshes(experts_)) {
    const std::vector<float> shared = test::cached_logits(layout, config_);
    ASSERT_EQ(shared.size(), alone.size()) << layout.str();
    for (size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(shared[i], alone[i], 1e-5) << layout.str() << ", token " << i;
  }
}

/// All gradients of a micro-batch, as rank 0 gathers them.
std::vector<float> gradients_of(const MeshLayout& layout, const ModelConfig& config, const RecomputeOptions& recompute,
                                bool overlap) {
  std::vector<float> all;
  run_ranks(layout.ranks(), [&](Communicator& world) {
    test::Sharing rank = layout.rank(world, config, {.overlap = overlap}, {}, recompute);
    rank.model.load(InitialState(3));
    const Communicator& samples = rank.mesh.group(Group::samples);
    const Batch batch = test::mesh_rows(*rank.context.memory, config, 0, 0, samples.rank(), samples.size());
    Engine engine(rank.model);
    engine.set_schedule(schedule_at(rank.mesh, layout.pipeline()));
    engine.accumulate(std::span(&batch, 1), 20);
    const std::vector<float> values = test::take_gradients(rank);
    if (world.rank() == 0) all = values;
  });
  return all;
}

TEST_P(MeshRuns, recomputation_and_overlap_change_no_bit) {
  for (const MeshLayout& layout : some_meshes(experts_)) {
    SCOPED_TRACE(layout.str());
    const std::vector<float> plain = gradients_of(layout, config_, Recompute::none, true);
    ASSERT_FALSE(plain.empty());
    EXPECT_EQ(gradients_of(layout, config_, Recompute::none, false), plain);
    EXPECT_EQ(gradients_of(layout, config_, Recompute::full, true), plain);
    EXPECT_EQ(gradients_of(layout, config_, Recompute::selective, true), plain);
    RecomputeOptions shared_out = Recompute::full;
    shared_out.partitioned = true;
    EXPECT_EQ(gradients_of(layout, config_, shared_out, true), plain);
  }
}

/// Latent attention, a dense layer, and experts that a bias helps to choose.
ModelConfig latent_model(int layers) { return test::small_model("deepseek_v3", layers); }

INSTANTIATE_TEST_SUITE_P(Families, MeshRuns,
                         ::testing::Values(Family{"dense", test::dense_mesh_model, 8},
                                           Family{"experts", test::expert_mesh_model, 8},
                                           Family{"biases", test::biased_mesh_model, 4},
                                           Family{"latent", latent_model, 4}),
                         [](const auto& info) { return std::string(info.param.name); });

class MeshExports : public ::testing::TestWithParam<const char*> {};

TEST_P(MeshExports, an_exported_folder_is_whole) {
  const std::string folder = test::golden_folder(GetParam());
  const ModelConfig config = ModelConfig::from_folder(folder);
  const int two = config.experts ? 2 : 1;
  for (const MeshLayout& layout :
       {MeshLayout{.sizes = {.shard = 2, .tensor = 2, .pipeline = 2, .expert = two, .expert_tensor = 2}, .stage = 3},
        MeshLayout{.sizes = {.replicate = 2, .shard = 2, .tensor = 2, .expert = two, .expert_tensor = 2},
        .stage = 2}}) {
    SCOPED_TRACE(layout.str());
    const test::TempFolder out;
    run_ranks(layout.ranks(), [&](Communicator& world) {
      test::Sharing rank = layout.rank(world, config);
      rank.model.load(HfWeights(folder, rank.decoder));
      export_hf_folder(rank.model, rank.decoder.config(), {}, out.path(), 1 << 30);
    });
    const Decoder decoder(ModelConfig::from_folder(out.path()));
    const HfWeights before(folder, decoder), after(out.path(), decoder);
    const Context context = Context::cpu();
    for (const auto& unit : decoder.units())
      for (const Parameter& parameter : unit->parameters()) {
        const Interval all{0, parameter.shape.numel()};
        const Tensor a = context.empty(parameter.shape, DType::f32), b = context.empty(parameter.shape, DType::f32);
        before.fill(StateKind::master, parameter, std::span(&all, 1), a);
        after.fill(StateKind::master, parameter, std::span(&all, 1), b);
        EXPECT_EQ(a.to_vector<float>(), b.to_vector<float>()) << parameter.name;
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, MeshExports,
                         ::testing::Values("open/llama_gqa", "open/mixtral", "open/gpt_oss", "open/deepseek_v3"),
                         [](const auto& info) { return std::string(info.param).substr(5); });

}  // namespace
}  // namespace nought::mesh_runs_test
