// Experts over ranks of their own: what each rank keeps of them and sends, and that neither stage nor bucket changes
// bits.
#include <map>

#include "support/cut_units.h"
#include "support/size.h"
#include "support/sweep.h"
#include <gtest/gtest.h>

#include "nought/comm/thread.h"

namespace nought::expert_groups_test {
namespace {

using test::CutUnits;

/// Elements of the trained segments that experts' ranks share out, or all ranks of the data. A rank whose shard is all
/// padding has no states.
struct Sizes {
  int64_t shards = 0, padded = 0, states = 0;
};

Sizes sizes_of(const Model& model, bool experts, int ranks, int rank = 0) {
  Sizes sizes;
  for (const auto& unit : model.units())
    for (size_t i = 0; i < unit->segments().size(); ++i) {
      const Segment& segment = unit->segments()[i];
      if (segment.cut_along.has(Axis::expert) != experts) continue;
      const Partition partition(segment.size, ranks);
      sizes.shards += partition.shard(), sizes.padded += partition.padded();
      if (!pieces_in(*unit, i, partition.owned(rank)).empty()) sizes.states += partition.shard();
    }
  return sizes;
}

TEST(ExpertGroups, each_stage_keeps_the_shards_of_the_ranks_that_hold_the_same_experts) {
  for (const int experts : {2, 4})
    for (const int stage : {0, 1, 2, 3})
      run_ranks(4, [&](Communicator& world, const Context& context) {
        const Mesh mesh(world, {.shard = 4, .expert = experts});
        CutUnits units(mesh);
        const ShardedModel model(context, mesh, units, {.policy = Policy::stage(stage)});
        const Sizes dense = sizes_of(units, false, 4, world.rank());
        const Sizes of_experts = sizes_of(units, true, 4 / experts, mesh.group(Group::expert_parameters).rank());
        const int64_t whole = dense.padded + of_experts.padded, sharded = dense.shards + of_experts.shards;
        const int64_t states = dense.states + of_experts.states;
        ASSERT_GT(of_experts.shards, 0);
        const MemoryLedger& ledger = context.memory->ledger();
        EXPECT_EQ(ledger.current(Category::parameters), 4 * (stage == 3 ? sharded : whole)) << stage;
        EXPECT_EQ(ledger.current(Category::gradients), 4 * (stage >= 2 ? sharded : whole)) << stage;
        EXPECT_EQ(ledger.current(Category::optimizer), 2 * 4 * (stage >= 1 ? states : whole)) << stage;
      });
}

TEST(ExpertGroups, what_a_step_sends_of_experts_goes_to_the_ranks_that_hold_the_same_ones) {
  for (const int stage : {0, 1, 2, 3})
    run_ranks(4, [&](Communicator& world, const Context& context) {
      const Mesh mesh(world, {.shard = 4, .expert = 2});
      CutUnits units(mesh);
      ShardedModel model(context, mesh, units, {.policy = Policy::stage(stage)});
      model.load(InitialState(5));
      std::map<std::string, Traffic> before, after;
      for (const auto& [axes, traffic] : mesh.traffic_by_axes()) before[axes] = traffic;
      test::walk_back(model, 1);
      model.update(/*lr=*/0.1, /*gradient_scale=*/1);
      model.settle();
      for (const auto& [axes, traffic] : mesh.traffic_by_axes()) after[axes] = traffic;
      const auto sent = [&](const char* axes, Collective::Kind collective) {
        return after.at(axes)[collective].elements - before.at(axes)[collective].elements;
      };
      const int64_t dense = 3 * sizes_of(units, false, 4).shards, experts = sizes_of(units, true, 2).shards;
      const int64_t gathers = stage == 3 ? 2 : 1;
      EXPECT_EQ(sent("shard", Collective::reduce_scatter), dense) << stage;
      EXPECT_EQ(sent("expert_shard", Collective::reduce_scatter), experts) << stage;
      EXPECT_EQ(sent("shard", Collective::all_gather), gathers * dense) << stage;
      EXPECT_EQ(sent("expert_shard", Collective::all_gather), gathers * experts) << stage;
      EXPECT_EQ(after.at("expert").total_elements(), 0) << "nobody exchanges tokens here";
    });
}

/// The weights after three steps.
std::map<std::string, std::vector<float>> trained(const Mesh& mesh, const Context& context,
                                                  const ShardedModel::Options& options) {
  CutUnits units(mesh);
  ShardedModel model(context, mesh, units, options);
  model.load(InitialState(5));
  for (int step = 0; step < 3; ++step) {
    test::walk_back(model, step);
    model.update(/*lr=*/0.1, /*gradient_scale=*/1);
  }
  return test::whole_weights(model);
}

NOUGHT_SIZE(medium);
TEST(ExpertGroups, every_mesh_stage_and_bucket_trains_experts_as_one_rank_does) {
  std::map<std::string, std::vector<float>> expected;
  run_ranks(1, [&](Communicator& world, const Context& context) { expected = trained(world, context, {}); });
  int turn = 0;
  for (const GridSizes& sizes : test::kExpertMeshes)
    for (const int stage : {0, 1, 2, 3})
      for (const int64_t bucket : {0, 100, 1'000'000}) {
        if (!test::samples(turn++, 5)) continue;
        SCOPED_TRACE(fmt::format("{}, stage {}, bucket {}", test::str(sizes), stage, bucket));
        run_ranks(test::ranks_of(sizes), [&](Communicator& world, const Context& context) {
          const ShardedModel::Options options{.policy = Policy::stage(stage),
                                              .overlap = stage % 2 == 0,
                                              .reduce_bucket = bucket,
                                              .gather_bucket = bucket};
          EXPECT_EQ(trained(Mesh(world, sizes), context, options), expected);
        });
      }
}

/// One value of each of two experts, to whose gradient every rank gives a part.
struct Partial final : Model {
  explicit Partial(const Mesh& mesh) {
    ExpertRanks(ModelRanks(mesh))
        .add_all(add_unit("unit"), "bias", {.global = {2, 3}, .partial = true}, Init::zeros(), ParameterRole::bias);
  }
  Var loss(Tape&, const Batch&, double) override { fail<Error>("nobody asks for it"); }
};

TEST(ExpertGroups, parts_of_a_gradient_are_added_over_the_ranks_that_share_an_expert) {
  for (const int stage : {0, 1, 2, 3})
    run_ranks(8, [&](Communicator& world, const Context& context) {
      const Mesh mesh(world, {.shard = 4, .tensor = 2, .expert = 2, .expert_tensor = 2});
      Partial partial(mesh);
      ShardedModel model(context, mesh, partial, {.policy = Policy::stage(stage)});
      model.load(InitialState(5));
      const Batch none;
      MicroBatch micro_batch(model, none, {});
      Unit& unit = *partial.units()[0];
      micro_batch.before_backward(unit);
      for (float& each : micro_batch.gradient(unit, 0, 0).into.span<float>())
        each = static_cast<float>(world.rank() + 1);
      micro_batch.after_backward(unit);
      model.finish_gradients();
      // Ranks 0, 1, 4 and 5 hold the first expert.
      EXPECT_EQ(model.gather_gradients(0)[0].to_vector<float>(), (std::vector<float>{14, 14, 14, 22, 22, 22}));
      model.discard_gradients();
    });
}

}  // namespace
}  // namespace nought::expert_groups_test
