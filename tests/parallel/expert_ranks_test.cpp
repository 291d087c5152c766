// Experts over ranks: every rank declares the same parameters, and holds the parts that their placements say.
#include "nought/parallel/expert_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/thread.h"

namespace nought::expert_ranks_test {
namespace {

using testing::ElementsAre;

constexpr int64_t kExperts = 4, kHidden = 8, kInside = 8;

const std::vector<GridSizes> kMeshes{{},
                                     {.shard = 2, .expert = 2},
                                     {.shard = 4, .expert = 2},
                                     {.shard = 4, .expert = 4},
                                     {.tensor = 2, .expert_tensor = 2},
                                     {.shard = 2, .tensor = 2, .expert = 2, .expert_tensor = 2}};

int ranks_of(const GridSizes& sizes) { return sizes.shard * sizes.tensor; }

/// Experts kept one by one, whose gates and ups are computed as one product.
ParameterView declare_separate(Unit& unit, const ExpertRanks& ranks) {
  const auto add = [&](int64_t expert, const char* name, Shape global, int dim) {
    return ranks.add_one(unit, fmt::format("{}.{}", expert, name), expert, kExperts, {.global = global, .dim = dim},
                         Init::normal(1));
  };
  std::vector<ParameterView> gate_up;
  for (int64_t e = 0; e < kExperts; ++e)
    for (const char* name : {"gate", "up"}) gate_up.push_back(add(e, name, {kInside, kHidden}, 0));
  for (int64_t e = 0; e < kExperts; ++e) add(e, "down", {kHidden, kInside}, 1);
  return unit.join(gate_up.front(), gate_up.back(),
                   {ranks.held(kExperts).size(), 2 * kInside / ranks.tensor().size(), kHidden});
}

void declare_fused(Unit& unit, const ExpertRanks& ranks) {
  const std::vector<int64_t> gate_and_up{kInside, kInside};
  ranks.add_all(unit, "gate_up", {.global = {kExperts, kHidden, 2 * kInside}, .dim = 2, .fused = gate_and_up},
                Init::normal(1));
  ranks.add_all(unit, "in_turn", {.global = {kExperts, kHidden, 2 * kInside}, .dim = 2, .granule = 2}, Init::normal(1));
  ranks.add_all(unit, "down", {.global = {kExperts, kInside, kHidden}, .dim = 1}, Init::normal(1));
  ranks.add_all(unit, "bias", {.global = {kExperts, kHidden}}, Init::zeros(), ParameterRole::bias);
  ranks.add_all(unit, "part", {.global = {kExperts, kHidden}, .partial = true}, Init::zeros(), ParameterRole::bias);
}

/// The part of a placement that this rank holds, dimension by dimension; an owner's peers have nothing of one.
std::vector<std::vector<Interval>> part_of(const Placement& placement, const Mesh& mesh) {
  std::vector<std::vector<Interval>> kept;
  for (const int64_t extent : placement.global) kept.push_back({{0, extent}});
  for (const bool owners : {false, true})
    for (const Cut& cut : placement.cuts) {
      if (cut.owner.has_value() != owners || (owners && *cut.owner == mesh.coordinate(cut.axis))) continue;
      kept[static_cast<size_t>(cut.dim)] =
          indices_of_part(placement.global[cut.dim], cut, mesh.coordinate(cut.axis), mesh.grid().size(cut.axis));
    }
  return kept;
}

TEST(ExpertRanks, every_rank_declares_all_parameters_and_holds_its_part_of_each) {
  for (const GridSizes& sizes : kMeshes) {
    SCOPED_TRACE(fmt::format("shard {} tensor {} expert {}", sizes.shard, sizes.tensor, sizes.expert));
    run_ranks(ranks_of(sizes), [&](Communicator& world, const Context& context) {
      const Mesh mesh(world, sizes);
      const ExpertRanks ranks{ModelRanks(mesh)};
      Unit unit("block");
      declare_separate(unit, ranks);
      declare_fused(unit, ranks);
      EXPECT_EQ(unit.parameters().size(), static_cast<size_t>(3 * kExperts + 5));
      for (const Parameter& parameter : unit.parameters()) {
        const std::vector<std::vector<Interval>> kept = part_of(parameter.placement, mesh);
        Shape held;
        for (const std::vector<Interval>& dim : kept) {
          int64_t extent = 0;
          for (const Interval& interval : dim) extent += interval.size();
          held.push_back(extent);
        }
        EXPECT_EQ(parameter.shape, held) << parameter.name;
        std::vector<double> elements{static_cast<double>(parameter.shape.numel())};
        all_reduce_values(world, context, elements);
        int parts = 1;
        for (const Cut& cut : parameter.placement.cuts) parts *= mesh.grid().size(cut.axis);
        EXPECT_EQ(elements[0] * parts, static_cast<double>(parameter.placement.global.numel() * world.size()))
            << parameter.name << ": each part is held by as many ranks";
      }
    });
  }
}

TEST(ExpertRanks, the_experts_of_a_rank_are_one_tensor_and_the_others_take_no_room) {
  for (const GridSizes& sizes : kMeshes)
    run_ranks(ranks_of(sizes), [&](Communicator& world) {
      const Mesh mesh(world, sizes);
      const ExpertRanks ranks{ModelRanks(mesh)};
      Unit unit("block");
      const ParameterView gate_up = declare_separate(unit, ranks);
      const Interval held = ranks.held(kExperts);
      EXPECT_EQ(held.size() * ranks.size(), kExperts);
      EXPECT_EQ(gate_up.shape(), (Shape{held.size(), 2 * kInside / sizes.tensor, kHidden}));
      int64_t at = 0;  // in the order of the experts, gate before up
      for (const Parameter& parameter : unit.parameters()) {
        if (parameter.name.ends_with("down")) continue;
        const int64_t expert = std::stoll(parameter.name);
        const bool mine = held.begin <= expert && expert < held.end;
        EXPECT_EQ(mine, ranks.holder(expert, kExperts) == ranks.rank());
        EXPECT_EQ(parameter.range.begin, at) << parameter.name;
        EXPECT_EQ(parameter.range.size(), mine ? kInside * kHidden / sizes.tensor : 0) << parameter.name;
        at = parameter.range.end;
      }
      ASSERT_EQ(unit.segments().size(), 1u);
      EXPECT_EQ(unit.segments()[0].size, 3 * kInside * kHidden * kExperts / ranks.size() / sizes.tensor);
    });
}

TEST(ExpertRanks, one_rank_has_parameters_without_cuts) {
  Unit unit("block");
  declare_separate(unit, {});
  declare_fused(unit, {});
  for (const Parameter& parameter : unit.parameters()) {
    EXPECT_TRUE(parameter.placement.cuts.empty() && parameter.partial_along == Axes{}) << parameter.name;
    EXPECT_EQ(parameter.shape, parameter.placement.global);
  }
  EXPECT_EQ(unit.segments().size(), 1u);
}

TEST(ExpertRanks, what_is_cut_along_other_axes_lies_in_other_segments) {
  run_ranks(4, [](Communicator& world) {
    const Mesh mesh(world, {.shard = 2, .tensor = 2, .expert = 2, .expert_tensor = 2});
    Unit unit("block");
    declare_fused(unit, ExpertRanks{ModelRanks(mesh)});
    ASSERT_EQ(unit.segments().size(), 3u);
    EXPECT_EQ(unit.segments()[0].cut_along, (Axes{Axis::expert, Axis::expert_tensor}));
    EXPECT_THAT(unit.segments()[0].parameters, ElementsAre(0u, 1u, 2u));
    EXPECT_EQ(unit.segments()[1].cut_along, Axes{Axis::expert});
    EXPECT_EQ(unit.segments()[2].partial_along, Axes{Axis::expert_tensor});
  });
}

}  // namespace
}  // namespace nought::expert_ranks_test
