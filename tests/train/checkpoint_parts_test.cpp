// Checkpoints of parameters that ranks hold in parts: any mesh continues what any other saved, bit for bit.
#include "support/cut_units.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>

#include "nought/checkpoint/checkpoint.h"
#include "nought/comm/thread.h"

namespace nought::checkpoint_parts_test {
namespace {

using test::CutUnits;
using test::TempFolder;
using Values = std::map<std::string, std::vector<float>>;

void update(ShardedModel& model, int step) {
  test::walk_back(model, step);
  model.update(1e-2, 1);
}

/// What is not trained of the model.
enum class Frozen { nothing, experts };

/// Makes update `step` of a run whose checkpoint of the step before lies in `from`; the first starts without one.
Values continue_on(const GridSizes& sizes, const ShardedModel::Options& options, Frozen frozen, int step,
                   const TempFolder& from, const TempFolder& to) {
  Values values;
  run_ranks(test::ranks_of(sizes), [&](Communicator& world, const Context& context) {
    const Mesh mesh(world, sizes);
    CutUnits units(mesh);
    if (frozen == Frozen::experts)
      for (const auto& unit : units.units())
        unit->choose_trained([](const Parameter& parameter) { return parameter.role != ParameterRole::expert; });
    ShardedModel model(context, mesh, units, options);
    if (step == 1) {
      model.load(InitialState(5));
    } else {
      const Checkpoint checkpoint(last_checkpoint(from.path()), units);
      model.load(checkpoint, checkpoint.info().step);
    }
    update(model, step);
    save_checkpoint(model, {.step = step, .world_size = world.size()}, to.path());
    const Values mine = test::whole_weights(model);
    if (world.rank() == 0) values = mine;
  });
  return values;
}

/// Neighbours in the list continue each other's checkpoints.
const std::vector<GridSizes> kMeshes{{},
                                     {.tensor = 2},
                                     {.shard = 4, .expert = 2},
                                     {.tensor = 3},
                                     {.shard = 2, .tensor = 2, .expert = 2, .expert_tensor = 2},
                                     {.shard = 3},
                                     {.shard = 3, .expert = 3},
                                     {.shard = 2, .context = 2, .tensor = 2},
                                     {.shard = 4, .tensor = 2, .expert = 2, .expert_tensor = 2},
                                     {.shard = 2, .expert = 2}};

void expect_any_mesh_continues(ShardedModel::Options options, Frozen frozen = Frozen::nothing) {
  TempFolder alone_1, alone_2;
  const Values first = continue_on({}, options, frozen, 1, alone_1, alone_1);
  const Values second = continue_on({}, options, frozen, 2, alone_1, alone_2);
  ASSERT_NE(first, second);
  for (size_t i = 0; i < kMeshes.size(); ++i) {
    const GridSizes &saves = kMeshes[i], &resumes = kMeshes[(i + 1) % kMeshes.size()];
    SCOPED_TRACE(fmt::format("{} continues {}", test::str(resumes), test::str(saves)));
    TempFolder once, twice;
    options.policy = Policy::stage(i % 2 == 0 ? 3 : 1);
    EXPECT_EQ(continue_on(saves, options, frozen, 1, once, once), first);
    options.policy = Policy::stage(i % 2 == 0 ? 0 : 2);
    EXPECT_EQ(continue_on(resumes, options, frozen, 2, once, twice), second);
  }
}

TEST(CheckpointParts, any_mesh_continues_what_another_saved) { expect_any_mesh_continues({}); }

TEST(CheckpointParts, frozen_experts_are_written_once_and_read_by_any_mesh) {
  expect_any_mesh_continues({}, Frozen::experts);
}

TEST(CheckpointParts, random_rounding_does_not_depend_on_the_mesh) {
  expect_any_mesh_continues(
      {.dtype = DType::bf16, .optimizer = {.master_weights = false, .stochastic_rounding = true}});
}

}  // namespace
}  // namespace nought::checkpoint_parts_test
