#include "nought/comm/mesh.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "support/guarded_context.h"
#include "support/mesh_checks.h"
#include "support/rank_values.h"
#include <gtest/gtest.h>

#include "nought/comm/thread.h"

namespace nought {
namespace {

TEST(Mesh, groups_of_every_name_connect_the_ranks_that_the_grid_says) {
  for (const GridSizes& sizes : test::meshes_of(8))
    run_ranks(8, [&](Communicator& world, const Context& context) { test::check_mesh(world, context, sizes); });
}

TEST(Mesh, with_one_axis_every_group_is_the_world_or_this_rank_alone) {
  run_ranks(3, [](Communicator& world) {
    const Mesh mesh(world);
    EXPECT_EQ(mesh.groups_made(), 0u) << "and nothing is split";
    for (const Group group : {Group::parameters, Group::samples, Group::losses, Group::metrics, Group::balance,
                              Group::norm, Group::fp8_maxima, Group::decisions, Group::expert_parameters})
      EXPECT_EQ(&mesh.group(group), &world) << name_of(group);
    for (const Group group : {Group::replicas, Group::tensor, Group::context, Group::pipeline, Group::experts})
      EXPECT_EQ(mesh.group(group).size(), 1) << name_of(group);
    EXPECT_EQ(mesh.coordinate(Axis::shard), world.rank());
  });
}

TEST(Mesh, groups_of_the_same_ranks_are_one_communicator) {
  run_ranks(4, [](Communicator& world) {
    const Mesh mesh(world, {.shard = 2, .tensor = 2});
    EXPECT_EQ(&mesh.group(Group::parameters), &mesh.group(Group::losses));
    EXPECT_NE(&mesh.group(Group::parameters), &mesh.group(Group::tensor));
    EXPECT_EQ(&mesh.group(Group::norm), &world);
    EXPECT_EQ(&mesh.group(Group::context), &mesh.group(Group::pipeline)) << "both are this rank alone";
    EXPECT_EQ(&mesh.group(Group::expert_parameters), &world) << "one expert axis over both others";
    EXPECT_EQ(mesh.groups_made(), 2u);
  });
}

TEST(Mesh, a_world_of_one_has_no_other_groups) {
  run_ranks(1, [](Communicator& world, const Context& context) {
    const Mesh mesh(world);
    for (int i = 0; i < kNumGroups; ++i) EXPECT_EQ(&mesh.group(static_cast<Group>(i)), &world);
    double value = 3;
    all_reduce_values(mesh.group(Group::norm), context, std::span(&value, 1));
    EXPECT_EQ(value, 3);
    EXPECT_EQ(mesh.traffic().total_bytes(), 0);
  });
}

TEST(Mesh, values_are_added_over_the_group_and_no_further) {
  run_ranks(4, [](Communicator& world, const Context& context) {
    const Mesh mesh(world, {.shard = 2, .tensor = 2});
    std::vector<double> sums{static_cast<double>(world.rank()), 1}, largest{static_cast<double>(world.rank())};
    all_reduce_values(mesh.group(Group::losses), context, sums);
    EXPECT_EQ(sums[0], world.rank() % 2 == 0 ? 0 + 2 : 1 + 3);
    EXPECT_EQ(sums[1], 2);
    all_reduce_values(mesh.group(Group::tensor), context, largest, ReduceOp::max);
    EXPECT_EQ(largest[0], world.rank() / 2 * 2 + 1);
  });
}

TEST(Mesh, traffic_is_told_by_the_axes_that_it_goes_along) {
  run_ranks(4, [](Communicator& world, const Context& context) {
    const Mesh mesh(world, {.shard = 2, .tensor = 2});
    std::vector<double> three(3), one(1);
    all_reduce_values(mesh.group(Group::tensor), context, three);
    all_reduce_values(mesh.group(Group::losses), context, one);
    all_reduce_values(mesh.group(Group::norm), context, one);
    std::map<std::string, int64_t> elements;
    int64_t all = 0;
    for (const auto& [axes, traffic] : mesh.traffic_by_axes())
      elements[axes] = traffic[Collective::all_reduce].elements, all += traffic.total_elements();
    EXPECT_EQ(elements.size(), 3u);
    EXPECT_EQ(elements.at("tensor"), 3) << "2 (N - 1) / N of the elements";
    EXPECT_EQ(elements.at("shard"), 1);
    EXPECT_TRUE(elements.contains("tensor x shard"));
    EXPECT_EQ(all, mesh.traffic().total_elements());
    EXPECT_EQ(Mesh(world).traffic_by_axes().front().axes, "shard");
  });
}

TEST(Mesh, traffic_of_experts_goes_along_axes_of_their_own) {
  run_ranks(8, [](Communicator& world) {
    const auto axes = [&](const GridSizes& sizes) {
      std::vector<std::string> names;
      for (const auto& [name, traffic] : Mesh(world, sizes).traffic_by_axes()) names.push_back(name);
      std::sort(names.begin(), names.end());
      return names;
    };
    EXPECT_EQ(axes({.shard = 8, .expert = 2}), (std::vector<std::string>{"expert", "expert_shard", "shard"}));
    EXPECT_EQ(axes({.shard = 4, .tensor = 2, .expert = 2, .expert_tensor = 2}),
              (std::vector<std::string>{"expert", "expert_shard", "shard", "tensor", "tensor x shard"}));
    EXPECT_EQ(axes({.shard = 8, .expert = 8}), std::vector<std::string>{"shard"}) << "the same ranks";
  });
}

/// As a rehearsal does, whose world cannot split.
TEST(Mesh, groups_can_be_made_by_somebody_else) {
  run_ranks(4, [](Communicator& world) {
    std::vector<std::vector<int>> asked;
    const auto make = [&](const std::vector<int>& ranks) {
      asked.push_back(ranks);
      return make_self_communicator();
    };
    const Mesh mesh(world, {.shard = 2, .tensor = 2}, make);
    EXPECT_EQ(asked.size(), mesh.groups_made());
    EXPECT_NE(std::find(asked.begin(), asked.end(), mesh.grid().group(world.rank(), Group::tensor)), asked.end());
  });
}

TEST(Mesh, sums_over_the_same_ranks_share_a_collective) {
  run_ranks(4, [](Communicator& world, const Context& context) {
    const auto calls = [](const Mesh& mesh) { return mesh.traffic()[Collective::all_reduce].calls; };
    for (const GridSizes& sizes : {GridSizes{.shard = 4}, GridSizes{.shard = 2, .tensor = 2}}) {
      const Mesh mesh(world, sizes);
      const std::vector<double> two{1, static_cast<double>(world.rank())}, one{static_cast<double>(world.rank())};
      const Tensor norm = context.upload<double>({2}, two), loss = context.upload<double>({1}, one);
      const Tensor none = context.empty({0}, DType::f64);
      const int64_t before = calls(mesh);
      const std::vector<double> sums =
          sums_on_host(mesh, context, {{Group::norm, norm}, {Group::losses, loss}, {Group::metrics, none}});
      ASSERT_EQ(sums.size(), 3u);
      EXPECT_EQ(std::vector(sums.begin(), sums.begin() + 2), (std::vector<double>{4, 6}));
      EXPECT_EQ(sums[2], sizes.tensor == 1 ? 6 : world.rank() % 2 == 0 ? 2 : 4);
      EXPECT_EQ(calls(mesh) - before, sizes.tensor == 1 ? 1 : 2);
    }
  });
}

TEST(Mesh, sums_that_are_on_the_device_come_to_the_host_together) {
  for (const bool guarded : {false, true})
    run_ranks(test::contexts_of(4, guarded), [](Communicator& world, const Context& context) {
      const Mesh mesh(world, {.shard = 2, .tensor = 2});
      const auto rank = static_cast<double>(world.rank());
      const std::vector<double> two{1, rank}, one{rank};
      const Tensor norm = context.upload<double>({2}, two), loss = context.upload<double>({1}, one);
      const int64_t before = mesh.traffic()[Collective::all_reduce].calls;
      const std::vector<double> sums = sums_on_host(mesh, context, {{Group::norm, norm}, {Group::losses, loss}});
      EXPECT_EQ(sums, (std::vector<double>{4, 6, world.rank() % 2 == 0 ? 2.0 : 4.0}));
      EXPECT_EQ(mesh.traffic()[Collective::all_reduce].calls - before, 2);
      const std::vector<double> same = sums_on_host(mesh, context, {{Group::losses, norm}, {Group::losses, loss}});
      EXPECT_EQ(same, (std::vector<double>{2, world.rank() % 2 == 0 ? 2.0 : 4.0, world.rank() % 2 == 0 ? 2.0 : 4.0}));
      EXPECT_EQ(mesh.traffic()[Collective::all_reduce].calls - before, 3) << "one for the same ranks";
      EXPECT_EQ(context.to_host<double>(loss).front(), rank) << "what was added stays";
      EXPECT_EQ(sums_on_host(mesh, context, {}, norm), two) << "and what comes along";
    });
}

/// What the ranks of one stage have of a Unit, by their place on the shard axis: values whose sum depends on the order.
double share_of(int unit, int shard) { return test::value_at<double>(shard, 1000 + unit) * (1 + 1e-9 * unit); }

/// The sum over all Units, when stage s holds the Units [borders[s], borders[s + 1]).
double norm_of(const std::vector<int>& borders, int shards) {
  const int stages = static_cast<int>(borders.size()) - 1, units = borders.back();
  std::vector<double> norms(static_cast<size_t>(stages * shards));
  run_ranks(stages * shards, [&](Communicator& world, const Context& context) {
    const Mesh mesh(world, {.shard = shards, .pipeline = stages});
    const auto stage = static_cast<size_t>(mesh.coordinate(Axis::pipeline));
    std::vector<double> by_unit(static_cast<size_t>(units));  // 0 where another stage has the Unit
    for (int unit = borders[stage]; unit < borders[stage + 1]; ++unit)
      by_unit[static_cast<size_t>(unit)] = share_of(unit, mesh.coordinate(Axis::shard));
    all_reduce_values(mesh.group(Group::norm), context, by_unit);
    norms[static_cast<size_t>(world.rank())] = std::accumulate(by_unit.begin(), by_unit.end(), 0.0);
  });
  EXPECT_EQ(std::count(norms.begin(), norms.end(), norms[0]), static_cast<std::ptrdiff_t>(norms.size()));
  return norms[0];
}

TEST(Mesh, a_norm_by_units_has_the_same_bits_for_every_cut_into_stages) {
  constexpr int kUnits = 7;
  for (const int shards : {1, 2, 3}) {
    const double whole = norm_of({0, kUnits}, shards);
    for (int cut = 0; cut <= kUnits; ++cut) EXPECT_EQ(norm_of({0, cut, kUnits}, shards), whole) << cut;
    EXPECT_EQ(norm_of({0, 1, 4, kUnits}, shards), whole);
  }
}

TEST(Mesh, a_rank_without_others_is_a_mesh) {
  const Mesh mesh;
  EXPECT_EQ(mesh.grid().ranks(), 1);
  EXPECT_EQ(mesh.group(Group::balance).size(), 1);
  const Mesh copy = mesh;
  EXPECT_EQ(&copy.world(), &mesh.world());
}

TEST(Mesh, traffic_counts_all_groups) {
  run_ranks(4, [](Communicator& world, const Context& context) {
    const Mesh mesh(world, {.shard = 2, .tensor = 2});
    const int64_t before = mesh.traffic().total_elements();
    const Tensor x = context.zeros({8}, DType::f32);
    mesh.group(Group::losses).all_reduce(x).wait();  // 8 elements
    mesh.group(Group::tensor).all_reduce(x).wait();  // 8
    world.all_reduce(x).wait();                      // 12
    EXPECT_EQ(mesh.traffic().total_elements() - before, 28);
  });
}

TEST(Mesh, a_grid_of_other_ranks_is_refused) {
  run_ranks(3, [](Communicator& world) { EXPECT_THROW(Mesh(world, {.shard = 2}), ConfigError); });
}

}  // namespace
}  // namespace nought
