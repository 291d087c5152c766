// Processes compute what thread ranks compute, to the bit, on every mesh of four: mpirun -n 4 test_train_mpi
#include <cstdio>

#include "support/mesh_runs.h"
#include <gtest/gtest.h>

#include "nought/comm/mpi.h"

namespace nought {
namespace {

constexpr Interval kSteps{0, 8};

/// Each factorisation of four, and two stages of two data-parallel ranks at every ZeRO stage.
std::vector<test::MeshLayout> layouts(bool experts) {
  std::vector<test::MeshLayout> all = test::sampled_meshes(4, experts);
  for (const int stage : {0, 1, 2, 3})
    all.push_back({.sizes = {.shard = 2, .pipeline = 2, .expert = experts ? 2 : 1}, .stage = stage});
  return all;
}

/// On every rank; the first one compares.
void compare_all(Communicator& world, ModelConfig (*model)(int layers), bool experts) {
  for (const test::MeshLayout& layout : layouts(experts)) {
    SCOPED_TRACE(layout.str());
    const ModelConfig config = model(layout.layers());
    const test::Course processes = test::train_in(world, layout, config, kSteps);
    if (world.rank() != 0) continue;
    const test::Course threads = test::train_on(layout, config, kSteps);
    EXPECT_EQ(processes.losses, threads.losses);
    EXPECT_EQ(processes.norms, threads.norms);
    EXPECT_EQ(processes.weights, threads.weights);
    EXPECT_EQ(processes.losses.size(), static_cast<size_t>(kSteps.size()));
    std::printf("%s\n", layout.str().c_str());
  }
}

Communicator* the_world = nullptr;

TEST(MpiMeshes, processes_have_the_bits_of_thread_ranks_on_every_mesh) {
  ASSERT_EQ(the_world->size(), 4);
  compare_all(*the_world, test::dense_mesh_model, false);
  compare_all(*the_world, test::expert_mesh_model, true);
}

}  // namespace
}  // namespace nought

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  try {
    nought::MpiWorld job(nought::Context::cpu());
    nought::the_world = &job.world();
    const int code = RUN_ALL_TESTS();
    if (code != 0) nought::MpiWorld::abort(code);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "test_train_mpi: %s\n", error.what());
    nought::MpiWorld::abort(3);
  }
  return 0;
}
