// Processes compute what thread ranks compute, to the bit, on every mesh of four: mpirun -n 4 test_train_mpi
#include <cstdio>

#include "support/training_case.h"
#include <gtest/gtest.h>

#include "nought/comm/mpi.h"

namespace nought::mpi_meshes {
namespace {

Communicator* the_world = nullptr;

/// On every rank; the first one compares. Each factorisation of four, and two stages of two data-parallel ranks at
/// every ZeRO stage.
void compare_all(const char* model, bool experts) {
  std::vector<test::MeshLayout> layouts = test::sampled_meshes(4, experts);
  for (const int stage : {0, 1, 2, 3})
    layouts.push_back({.sizes = {.shard = 2, .pipeline = 2, .expert = experts ? 2 : 1}, .stage = stage});
  for (const test::MeshLayout& layout : layouts) {
    const test::TrainingCase each{.model = test::small_model(model, layout.layers()), .mesh = layout, .steps = {0, 3}};
    const test::TrainingResult processes = each.run_in(*the_world, Context::cpu());
    if (the_world->rank() != 0) continue;
    EXPECT_EQ(processes.losses.size(), 3u);
    expect_same_bits(processes, each.run());
    std::printf("%s\n", layout.str().c_str());
  }
}

TEST(MpiMeshes, processes_have_the_bits_of_thread_ranks_on_every_mesh) {
  ASSERT_EQ(the_world->size(), 4);
  compare_all("qk_norms", false);
  compare_all("shared_experts", true);
}

}  // namespace
}  // namespace nought::mpi_meshes

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  try {
    nought::MpiWorld job(nought::Context::cpu());
    nought::mpi_meshes::the_world = &job.world();
    const int code = RUN_ALL_TESTS();
    if (code != 0) nought::MpiWorld::abort(code);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "test_train_mpi: %s\n", error.what());
    nought::MpiWorld::abort(3);
  }
  return 0;
}
