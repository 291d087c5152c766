// Beside a device that the host has no access to, ranks that share matrices and those of a pipeline have the bits of
// the CPU without offload, wherever states, gradients and parameters are.
#include <chrono>

#include "support/guarded_context.h"
#include "support/mesh_runs.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>

namespace nought::offload_guarded_test {
namespace {

using test::Course;
using test::MeshLayout;

/// Two steps of four micro-batches in bf16.
Course guarded_course(const MeshLayout& layout, const ShardedModel::Options& sharding, bool guarded) {
  Course course;
  const ModelConfig config = test::dense_mesh_model(layout.layers());
  run_ranks(test::contexts_of(layout.ranks(), guarded), [&](Communicator& world, const Context& context) {
    world.set_timeout(std::chrono::seconds(60));  // a message that never comes is told, and no run without an end
    test::Sharing rank = layout.rank(world, config, sharding, {}, {}, context);
    rank.model.load(InitialState(3));
    Engine engine(rank.model);
    engine.set_schedule(schedule_at(rank.mesh, layout.pipeline()));
    const Communicator& samples = rank.mesh.group(Group::samples);
    for (int64_t step = 0; step < 2; ++step) {
      std::vector<Batch> batches;
      for (int64_t i = 0; i < test::kMeshAccumulation; ++i)
        batches.push_back(test::mesh_rows(*context.memory, config, step, i, samples.rank(), samples.size()));
      const StepResult result = engine.step(batches, 200, 2e-3, test::kMeshClipping);
      if (world.rank() == 0) course.losses.push_back(result.loss), course.norms.push_back(result.grad_norm);
    }
    const auto weights = test::whole_values(rank.model);
    if (world.rank() == 0) course.weights = weights;
  });
  return course;
}

const OffloadOptions kOnHost{.home = Pool::host, .sub_group = 700};

OffloadOptions in_files(const test::TempFolder& folder) {
  return {.home = Pool::file,
          .folder = folder.path().string(),
          .sub_group = 700,
          .reads_ahead = true,
          .writes_behind = true,
          .buffers = 12,
          .gradients_in_file = true};
}

/// What the guarded device computes with the options is what the CPU computed without offload.
void expect_guarded(const MeshLayout& layout, const ShardedModel::Options& options, const Course& expected) {
  const Course course = guarded_course(layout, options, /*guarded=*/true);
  EXPECT_EQ(course.losses, expected.losses);
  EXPECT_EQ(course.norms, expected.norms);
  EXPECT_TRUE(course.weights == expected.weights);
}

TEST(GuardedOffload, changes_no_bit_of_ranks_that_share_matrices) {
  const test::TempFolder folder;
  const ParameterHome parameters{.home = Pool::file, .folder = folder.path().string(), .buffers = 2};
  for (const MeshLayout& layout :
       {MeshLayout{.sizes = {.shard = 2, .tensor = 2}, .stage = 2},
        MeshLayout{.sizes = {.shard = 2, .tensor = 2}, .sequence_parallel = true, .stage = 3}}) {
    const ShardedModel::Options plain{.dtype = DType::bf16, .gradient_dtype = DType::bf16};
    const Course expected = guarded_course(layout, plain, /*guarded=*/false);
    for (const OffloadOptions& states : {kOnHost, in_files(folder)})
      for (const ParameterHome& home : {ParameterHome{}, ParameterHome{.home = Pool::host}, parameters}) {
        if (layout.stage < 3 && home.home != Pool::device) continue;
        SCOPED_TRACE(fmt::format("{}, states in the {} pool, parameters in the {} pool", layout.str(),
                                 name_of(states.home), name_of(home.home)));
        ShardedModel::Options offloaded = plain;
        offloaded.offload_optimizer = states, offloaded.offload_param = home;
        expect_guarded(layout, offloaded, expected);
      }
  }
}

TEST(GuardedOffload, changes_no_bit_of_pipelines) {
  const test::TempFolder folder;
  std::vector<MeshLayout> layouts{{.sizes = {.shard = 2, .pipeline = 2}, .stage = 2},
                                  {.sizes = {.tensor = 2, .pipeline = 2}, .stage = 1}};
  for (const PipelineSchedule schedule : test::kAllSchedules)
    layouts.push_back({.sizes = {.pipeline = 2}, .stage = 0, .schedule = schedule});
  for (const MeshLayout& layout : layouts) {
    const ShardedModel::Options plain{.dtype = DType::bf16};
    const Course expected = guarded_course(layout, plain, /*guarded=*/false);
    for (const OffloadOptions& states : {OffloadOptions{}, kOnHost, in_files(folder)}) {
      SCOPED_TRACE(fmt::format("{}, states in the {} pool", layout.str(), name_of(states.home)));
      ShardedModel::Options options = plain;
      options.offload_optimizer = states;
      expect_guarded(layout, options, expected);
    }
  }
}

}  // namespace
}  // namespace nought::offload_guarded_test
