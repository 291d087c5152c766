// Muon over ranks that hold matrices in parts: the bits of one rank, and its work shared.
#include "nought/zero/orthogonalize.h"

#include "support/cut_units.h"
#include "support/guarded_context.h"
#include "support/size.h"
#include "support/sweep.h"
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/kernels/watch.h"

namespace nought::orthogonalize_test {
namespace {

const OptimizerOptions kMuon{.method = MuonOptions{}, .weight_decay = 0.1};

/// The weights after three steps.
std::map<std::string, std::vector<float>> trained(const Mesh& mesh, const Context& context, int stage) {
  test::CutUnits units(mesh);
  ShardedModel model(context, mesh, units, {.policy = Policy::stage(stage), .optimizer = kMuon});
  model.load(InitialState(5));
  for (int step = 0; step < 3; ++step) {
    test::walk_back(model, step);
    model.update(/*lr=*/0.1, /*gradient_scale=*/1);
  }
  return test::whole_weights(model);
}

NOUGHT_SIZE(medium);
TEST(Orthogonalize, muon_gives_the_bits_of_one_rank_on_every_mesh) {
  std::map<std::string, std::vector<float>> expected;
  run_ranks(1, [&](Communicator& world, const Context& context) { expected = trained(world, context, 0); });
  std::vector<GridSizes> meshes{{.tensor = 2}, {.tensor = 3}, {.shard = 2, .tensor = 2}};
  meshes.insert(meshes.end(), test::kExpertMeshes.begin(), test::kExpertMeshes.end());
  int turn = 0;
  for (const GridSizes& sizes : meshes)
    for (const int stage : {0, 1, 3}) {
      if (!test::samples(turn++, 2)) continue;
      SCOPED_TRACE(fmt::format("{}, stage {}", test::str(sizes), stage));
      run_ranks(test::ranks_of(sizes), [&](Communicator& world, const Context& context) {
        EXPECT_EQ(trained(Mesh(world, sizes), context, stage), expected);
      });
    }
}

NOUGHT_SIZE(medium);
TEST(Orthogonalize, devices_that_run_late_and_that_the_host_cannot_read_agree) {
  std::map<std::string, std::vector<float>> expected;
  run_ranks(test::contexts_of(1, true),
            [&](Communicator& world, const Context& context) { expected = trained(world, context, 0); });
  for (const GridSizes& sizes : test::kExpertMeshes) {
    SCOPED_TRACE(test::str(sizes));
    run_ranks(test::contexts_of(test::ranks_of(sizes), true), [&](Communicator& world, const Context& context) {
      EXPECT_EQ(trained(Mesh(world, sizes), context, 1), expected);
    });
  }
}

/// Four matrices, cut over the tensor axis if it has several ranks.
struct Matrices final : Model {
  explicit Matrices(const Mesh& mesh) {
    Unit& unit = add_unit("block");
    for (const char* name : {"a", "b", "c", "d"})
      TensorRanks(mesh).add(unit, name, {.global = {8, 6}, .dim = 0}, Init::normal(0.5));
  }
  Var loss(Tape&, const Batch&, double) override { fail<Error>("nobody asks for it"); }
};

NOUGHT_SIZE(medium);
TEST(Orthogonalize, ranks_that_share_matrices_share_the_work) {
  const auto products = [](const GridSizes& sizes) {
    std::vector<int> counts(static_cast<size_t>(test::ranks_of(sizes)));
    run_ranks(test::ranks_of(sizes), [&](Communicator& world, const Context& plain) {
      const Mesh mesh(world, sizes);
      int& count = counts[static_cast<size_t>(world.rank())];
      const Context context{
          plain.memory,
          make_watching_kernels(plain.kernels, [&](std::string_view operation, std::string_view,
                                                   const Tensor&) { count += operation == "MatMul"; }),
          plain.stream};
      Matrices matrices(mesh);
      ShardedModel model(context, mesh, matrices, {.optimizer = kMuon});
      model.load(InitialState(5));
      test::walk_back(model, 1);
      model.update(/*lr=*/0.1, /*gradient_scale=*/1);
    });
    return counts;
  };
  const int alone = products({})[0];
  ASSERT_GT(alone, 0);
  for (const GridSizes& sizes : std::vector<GridSizes>{{.tensor = 2}, {.tensor = 4}, {.shard = 2, .tensor = 2}})
    for (const int each : products(sizes)) EXPECT_EQ(each * test::ranks_of(sizes), alone) << test::str(sizes);
}

}  // namespace
}  // namespace nought::orthogonalize_test
