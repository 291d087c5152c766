// Runs of ranks that share matrices, heads and the vocabulary are those of one rank, on every mesh.
#include "support/cut_units.h"
#include "support/sharing.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/train/checkpoint.h"
#include "nought/train/engine.h"

namespace nought {
namespace {

using namespace test;

struct Course {
  std::vector<double> losses, norms;
  std::map<std::string, std::vector<float>> weights;  // at the end, whole
};

/// Steps [from, to) of a run. The states before are those of `resumed`, and those after are left in `saved`, if these
/// are folders.
Course train(const std::string& family, const GridSizes& sizes, ShardedModel::Options options, Interval steps,
             const std::string& resumed = "", const std::string& saved = "", const Fp8Options& fp8 = {}) {
  Course course;
  run_ranks(sizes.tensor * sizes.shard, [&](Communicator& world) {
    Sharing rank(world, sizes, small_model(family), options, fp8);
    if (resumed.empty()) {
      rank.model.load(InitialState(3));
    } else {
      const Checkpoint checkpoint(last_checkpoint(resumed), rank.decoder);
      rank.model.load(checkpoint, checkpoint.info().step);
    }
    Engine engine(rank.model);
    const Communicator& samples = rank.mesh.group(Group::samples);
    for (int64_t step = steps.begin; step < steps.end; ++step) {
      std::vector<Batch> batches;
      double targets = 0;
      for (int64_t i = 0; i < kAccumulation; ++i) {
        batches.push_back(rows_of(*rank.context.memory, step, i, samples.rank(), samples.size()));
        targets += CrossEntropyObjective().weight(rows_of(*rank.context.memory, step, i, 0, 1));
      }
      const StepResult result = engine.step(batches, targets, 2e-3, 0.3);
      if (world.rank() != 0) continue;
      EXPECT_GT(result.grad_norm, 0.3) << "clipping is active";
      course.losses.push_back(result.loss), course.norms.push_back(result.grad_norm);
    }
    if (!saved.empty()) save_checkpoint(rank.model, {.step = steps.end, .world_size = world.size()}, saved);
    const auto weights = test::whole_values(rank.model);
    if (world.rank() == 0) course.weights = weights;
  });
  return course;
}

/// Adam divides by the root of a square: with its usual epsilon, rounding decides what a gradient near 0 does.
const ShardedModel::Options kAdam{.optimizer = {.method = AdamOptions{.eps = 1e-4}, .weight_decay = 0.1}};

void expect_close(const Course& course, const Course& alone, size_t first = 0) {
  for (size_t i = 0; i < course.losses.size(); ++i) {
    EXPECT_NEAR(course.losses[i], alone.losses[first + i], 1e-5) << "loss of step " << first + i;
    EXPECT_NEAR(course.norms[i], alone.norms[first + i], 1e-5 * alone.norms[first + i]) << "norm of " << first + i;
  }
  ASSERT_EQ(course.weights.size(), alone.weights.size());
  for (const auto& [name, values] : course.weights) {
    const std::vector<float>& want = alone.weights.at(name);
    ASSERT_EQ(values.size(), want.size()) << name;
    double largest = 0;
    for (size_t i = 0; i < values.size(); ++i)
      largest = std::max(largest, std::abs(static_cast<double>(values[i]) - static_cast<double>(want[i])));
    EXPECT_LE(largest, 1e-5) << name;
  }
}

class TensorParallelRuns : public ::testing::TestWithParam<const char*> {};

TEST_P(TensorParallelRuns, thirty_steps_are_those_of_one_rank_at_every_mesh_and_stage) {
  const Course alone = train(GetParam(), {}, kAdam, {0, kSteps});
  for (const GridSizes sizes : std::vector<GridSizes>{{.tensor = 2}, {.tensor = 4}, {.shard = 2, .tensor = 2}})
    for (const int stage : {0, 1, 2, 3}) {
      if (sizes.shard == 1 && stage > 0) continue;
      SCOPED_TRACE(fmt::format("tensor {}, shard {}, stage {}", sizes.tensor, sizes.shard, stage));
      ShardedModel::Options options = kAdam;
      options.policy = Policy::stage(stage);
      expect_close(train(GetParam(), sizes, options, {0, kSteps}), alone);
    }
}

TEST_P(TensorParallelRuns, a_checkpoint_of_one_mesh_is_continued_by_another) {
  const Course alone = train(GetParam(), {}, kAdam, {0, kSteps});
  const std::vector<GridSizes> meshes{{.tensor = 2}, {.shard = 2, .tensor = 2}, {.shard = 2}, {.tensor = 4}, {}};
  for (size_t i = 0; i < meshes.size(); ++i) {
    const GridSizes &saves = meshes[i], &resumes = meshes[(i + 1) % meshes.size()];
    SCOPED_TRACE(fmt::format("tensor {}, shard {} continues", saves.tensor, saves.shard));
    const test::TempFolder folder;
    ShardedModel::Options options = kAdam;
    options.policy = Policy::stage(i % 2 == 0 ? 3 : 1);
    train(GetParam(), saves, options, {0, kSteps / 2}, "", folder.path());
    expect_close(train(GetParam(), resumes, kAdam, {kSteps / 2, kSteps}, folder.path()), alone, kSteps / 2);
  }
}

TEST_P(TensorParallelRuns, the_same_mesh_resumes_bit_for_bit) {
  const GridSizes sizes{.shard = 2, .tensor = 2};
  const test::TempFolder folder;
  const Course whole = train(GetParam(), sizes, kAdam, {0, 6});
  train(GetParam(), sizes, kAdam, {0, 3}, "", folder.path());
  EXPECT_EQ(train(GetParam(), sizes, kAdam, {3, 6}, folder.path()).weights, whole.weights);
}

/// In bf16, and with factors of 8 bits, the losses are not those of one rank to the last digit, but the model learns
/// the same.
TEST_P(TensorParallelRuns, bf16_and_fp8_follow_one_rank) {
  ShardedModel::Options options = kAdam;
  options.dtype = DType::bf16;
  for (const Fp8Scaling scaling : {Fp8Scaling::none, Fp8Scaling::delayed, Fp8Scaling::current}) {
    const Fp8Options fp8{.scaling = scaling, .history = 4};
    const Course alone = train(GetParam(), {}, options, {0, kSteps}, "", "", fp8);
    const Course shared = train(GetParam(), {.shard = 2, .tensor = 2}, options, {0, kSteps}, "", "", fp8);
    for (size_t i = 0; i < kSteps; ++i)
      EXPECT_NEAR(shared.losses[i], alone.losses[i], 2e-2) << i << " with fp8 " << name_of(scaling);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TensorParallelRuns, ::testing::Values("qwen3", "gpt2", "deepseek_v3"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace nought
