// Ranks that hold parts of the same sequences train as one rank does: 30 steps with unequal masks, accumulation and
// active clipping, in fp32. Rows have a length that no number of chunks divides.
#include <map>

#include "support/guarded_context.h"
#include "support/mesh_runs.h"
#include "support/sweep.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>

namespace nought::context_parallel_test {
namespace {

using test::Course;
using test::CourseOptions;
using test::expect_close;
using test::Family;
using test::MeshLayout;
using test::runs_everything;
using test::train_on;

constexpr int64_t kSteps = 30;
// With rows of 13, a token of step 21 finds two experts equally good but for rounding, which then chooses one of them.
constexpr test::MeshRows kRows{.length = 11}, kPacked{.length = 11, .documents = true};
constexpr std::array kMethods{ContextMethod::ring, ContextMethod::gather, ContextMethod::heads};

/// Every factorisation of 8 ranks with 2 or 4 that share sequences, experts over all that have different tokens.
/// Methods, ZeRO stages and schedules take turns; NOUGHT_LONG: each method at each stage.
std::vector<MeshLayout> context_meshes(bool experts) {
  std::vector<MeshLayout> all;
  size_t turn = 0;
  for (const int context : {2, 4})
    for (GridSizes sizes : test::factorisations(8 / context, false)) {
      sizes.context = context;
      if (experts) sizes.expert = std::min(context * sizes.shard, 8);
      for (size_t method = 0; method < kMethods.size(); ++method)
        for (int stage = 0; stage < 4; ++stage) {
          if (!runs_everything() && (method != turn % kMethods.size() || stage != static_cast<int>(turn % 4))) continue;
          // A rank of tp_size has 8 / tp_size heads, which those of sp_size divide.
          MeshLayout layout{.sizes = sizes, .stage = stage, .method = kMethods[method]};
          layout.sequence_parallel = sizes.tensor > 1 && turn % 2 == 0;
          layout.schedule = test::kAllSchedules[turn % test::kAllSchedules.size()];
          if (layout.stages() <= test::kMostStages) all.push_back(layout);
        }
      ++turn;
    }
  return all;
}

class ContextParallel : public ::testing::TestWithParam<Family> {
 protected:
  const ModelConfig config_ = GetParam().config(2);
  const bool experts_ = config_.experts.has_value();
  CourseOptions options_{.rows = kRows};
};

TEST_P(ContextParallel, thirty_steps_are_those_of_one_rank_on_every_mesh) {
  std::map<int, Course> alone;  // by the layers of the model
  for (const MeshLayout& layout : context_meshes(experts_)) {
    SCOPED_TRACE(layout.str());
    const ModelConfig config = GetParam().config(layout.layers());
    if (!alone.contains(layout.layers())) alone[layout.layers()] = train_on({}, config, {0, kSteps}, options_);
    expect_close(train_on(layout, config, {0, kSteps}, options_), alone.at(layout.layers()));
  }
}

/// Documents begin within chunks, at their ends and on both sides of them, also with a single token.
TEST_P(ContextParallel, documents_that_cross_ranks_see_themselves_alone) {
  options_.rows = kPacked;
  const Course alone = train_on({}, config_, {0, 5}, options_);
  EXPECT_NE(alone.losses, train_on({}, config_, {0, 5}, {.rows = kRows}).losses) << "documents matter";
  for (const ContextMethod method : kMethods)
    for (const int context : {2, 4}) {
      const MeshLayout layout{.sizes = {.shard = 4 / context, .context = context}, .stage = 3, .method = method};
      SCOPED_TRACE(layout.str());
      expect_close(train_on(layout, config_, {0, 5}, options_), alone);
    }
}

TEST_P(ContextParallel, a_checkpoint_is_continued_by_any_other_mesh) {
  constexpr int64_t kEach = 2;
  const int two = experts_ ? 2 : 1;
  const std::vector<MeshLayout> chain{
      {.sizes = {.shard = 2, .context = 2, .expert = two}, .stage = 3, .method = ContextMethod::ring},
      {.sizes = {.tensor = 2, .expert_tensor = 2}, .sequence_parallel = true, .stage = 0},
      {.sizes = {.context = 4, .expert = two}, .stage = 1, .method = ContextMethod::heads},
      {.sizes = {.context = 2, .tensor = 2, .expert_tensor = 2}, .stage = 2, .method = ContextMethod::gather},
      {.sizes = {}, .stage = 0},
      {.sizes = {.context = 2, .pipeline = 2}, .stage = 1, .method = ContextMethod::gather}};
  const Course alone = train_on({}, config_, {0, kEach * static_cast<int64_t>(chain.size())}, options_);
  const test::TempFolder folder;
  for (size_t i = 0; i < chain.size(); ++i) {
    SCOPED_TRACE(chain[i].str());
    const int64_t begin = kEach * static_cast<int64_t>(i);
    options_.resumed = i == 0 ? "" : folder.path().string(), options_.saved = folder.path().string();
    const Course part = train_on(chain[i], config_, {begin, begin + kEach}, options_);
    for (size_t step = 0; step < part.losses.size(); ++step)
      EXPECT_NEAR(part.losses[step], alone.losses[static_cast<size_t>(begin) + step], 1e-5);
  }
}

/// Loss and logits of an evaluation, as the last rank has them.
std::vector<float> evaluated(const MeshLayout& layout, const ModelConfig& config) {
  std::vector<float> values;
  run_ranks(layout.ranks(), [&](Communicator& world) {
    test::Sharing rank = layout.rank(world, config);
    rank.model.load(InitialState(3));
    const Communicator& samples = rank.mesh.group(Group::samples);
    Memory& memory = *rank.context.memory;
    const Batch rows = test::mesh_rows(memory, config, 0, 0, samples.rank(), samples.size(), kRows);
    const double targets = CrossEntropyObjective().weight(test::mesh_rows(memory, config, 0, 0, 0, 1, kRows));
    Engine engine(rank.model);
    const double loss = engine.evaluate(std::span(&rows, 1), targets);
    const Batch all = test::mesh_rows(memory, config, 0, 0, 0, 1, kPacked);
    const std::vector<float> logits = rank.decoder.logits(rank.context, all).to_vector<float>();
    if (world.rank() != world.size() - 1) return;
    values = logits;
    values.push_back(static_cast<float>(loss));
  });
  return values;
}

TEST_P(ContextParallel, an_evaluation_has_the_loss_and_the_logits_of_one_rank) {
  const std::vector<float> alone = evaluated({}, config_);
  for (const ContextMethod method : kMethods)
    for (const GridSizes& sizes : {GridSizes{.context = 4}, {.shard = 2, .context = 2}, {.context = 2, .tensor = 2}}) {
      const MeshLayout layout{.sizes = sizes, .sequence_parallel = sizes.tensor > 1, .method = method};
      SCOPED_TRACE(layout.str());
      const std::vector<float> shared = evaluated(layout, config_);
      ASSERT_EQ(shared.size(), alone.size());
      for (size_t i = 0; i < alone.size(); ++i) ASSERT_NEAR(shared[i], alone[i], 2e-6) << i;
    }
}

TEST_P(ContextParallel, every_rank_generates_what_one_rank_does) {
  const std::vector<float> alone = test::cached_logits({}, config_);
  ASSERT_EQ(alone.size(), static_cast<size_t>(test::kMeshVocabulary));
  EXPECT_EQ(test::cached_logits({.sizes = {.context = 4}}, config_), alone) << "each has the whole cache";
}

struct Numbers {
  DType dtype = DType::f32;
  bool guarded = false;  // on the guarded device
};

/// All gradients of a micro-batch, as rank 0 gathers them.
std::vector<float> gradients_of(const MeshLayout& layout, const ModelConfig& config, const RecomputeOptions& recompute,
                                const Numbers& numbers) {
  std::vector<float> all;
  run_ranks(test::contexts_of(layout.ranks(), numbers.guarded), [&](Communicator& world, const Context& context) {
    test::Sharing rank = layout.rank(world, config, {.dtype = numbers.dtype}, {}, recompute, context);
    rank.model.load(InitialState(3));
    const Communicator& samples = rank.mesh.group(Group::samples);
    const std::shared_ptr<Memory> host = Memory::create();
    const Batch batch = test::mesh_rows(*host, config, 0, 0, samples.rank(), samples.size(), kPacked);
    Engine(rank.model).accumulate(std::span(&batch, 1), 20);
    const std::vector<float> values = test::take_gradients(rank);
    if (world.rank() == 0) all = values;
  });
  return all;
}

/// In fp32 and in 16 bits, on the CPU and on the guarded device, whose kernels run late and give the CPU's bits.
TEST_P(ContextParallel, recomputation_and_inputs_on_the_host_change_no_bit) {
  RecomputeOptions on_host{Recompute::full}, contiguous{Recompute::full};
  on_host.pool = contiguous.pool = Pool::host;
  contiguous.contiguous = true, contiguous.checkpoints = 1;
  for (const ContextMethod method : kMethods)
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const MeshLayout layout{.sizes = {.shard = 2, .context = 2}, .stage = 3, .method = method};
      SCOPED_TRACE(fmt::format("{}, {}", name_of(dtype), layout.str()));
      const std::vector<float> plain = gradients_of(layout, config_, Recompute::none, {.dtype = dtype});
      ASSERT_FALSE(plain.empty());
      for (const bool guarded : {false, true})
        for (const RecomputeOptions& recompute :
             {RecomputeOptions(Recompute::none), RecomputeOptions(Recompute::selective),
              RecomputeOptions(Recompute::full), on_host, contiguous})
          EXPECT_EQ(gradients_of(layout, config_, recompute, {dtype, guarded}), plain)
              << recompute.str() << (guarded ? " on the guarded device" : "");
    }
}

/// In bf16, and with factors of 8 bits, the losses are not those of one rank to the last digit, but the model learns
/// the same.
TEST_P(ContextParallel, bf16_and_fp8_follow_one_rank) {
  options_.sharding.dtype = DType::bf16;
  for (const Fp8Scaling scaling : {Fp8Scaling::none, Fp8Scaling::delayed, Fp8Scaling::current}) {
    options_.fp8 = {.scaling = scaling, .history = 4};
    const Course alone = train_on({}, config_, {0, kSteps}, options_);
    for (const ContextMethod method : kMethods) {
      const MeshLayout layout{.sizes = {.shard = 2, .context = 2}, .method = method};
      SCOPED_TRACE(fmt::format("fp8 {}, {}", name_of(scaling), layout.str()));
      const Course shared = train_on(layout, config_, {0, kSteps}, options_);
      for (size_t i = 0; i < kSteps; ++i) EXPECT_NEAR(shared.losses[i], alone.losses[i], 2e-2) << i;
    }
  }
}

TEST(ContextParallelRows, too_short_ones_and_heads_that_do_not_divide_are_refused) {
  const MeshLayout layout{.sizes = {.context = 4}, .method = ContextMethod::ring};
  EXPECT_THROW(train_on(layout, test::dense_mesh_model(2), {0, 1}), ConfigError) << "rows of 7 tokens, 8 chunks";
  ModelConfig config = test::dense_mesh_model(2);
  config.num_heads = 6;
  EXPECT_THROW(train_on({.sizes = {.context = 4}, .method = ContextMethod::heads}, config, {0, 1}, {.rows = kRows}),
               ConfigError);
}

INSTANTIATE_TEST_SUITE_P(Families, ContextParallel,
                         ::testing::Values(Family{"dense", test::dense_mesh_model},
                                           Family{"experts", test::expert_mesh_model},
                                           Family{"biases", test::biased_mesh_model}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace nought::context_parallel_test
