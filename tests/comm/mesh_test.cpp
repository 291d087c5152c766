#include "nought/comm/mesh.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "support/guarded_context.h"
#include "support/mesh_checks.h"
#include "support/message_of.h"
#include "support/rank_values.h"
#include "support/size.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/thread.h"

namespace nought::mesh_test {
namespace {

NOUGHT_SIZE(medium);
TEST(Mesh, groups_of_every_name_connect_the_ranks_that_the_grid_says) {
  for (const GridSizes& sizes : test::meshes_of(8))
    run_ranks(8, [&](Communicator& world, const Context& context) { test::check_mesh(world, context, sizes); });
}

TEST(Mesh, with_one_axis_every_group_is_the_world_or_this_rank_alone) {
  run_ranks(3, [](Communicator& world) {
    const Mesh mesh(world);
    EXPECT_EQ(mesh.traffic_by_axes().size(), 1u) << "and nothing is split";
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
    EXPECT_EQ(mesh.traffic_by_axes().size(), 3u) << "two beside the world";
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

/// As a dry run does, whose world cannot split.
TEST(Mesh, groups_can_be_made_by_somebody_else) {
  run_ranks(4, [](Communicator& world) {
    std::vector<std::vector<int>> asked;
    const auto make = [&](const std::vector<int>& ranks) {
      asked.push_back(ranks);
      return make_self_communicator();
    };
    const Mesh mesh(world, {.shard = 2, .tensor = 2}, make);
    EXPECT_EQ(asked.size() + 1, mesh.traffic_by_axes().size()) << "beside the world";
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

NOUGHT_SIZE(medium);
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

NOUGHT_SIZE(medium);
TEST(Mesh, messages_between_stages_keep_their_order_and_wait_for_none_of_the_other_direction) {
  for (const int ranks : {2, 3, 4, 6}) run_ranks(ranks, test::check_channels);
}

TEST(Mesh, only_stages_that_are_neighbours_have_channels) {
  run_ranks(4, [](Communicator& world, const Context& context) {
    const Mesh mesh(world, {.pipeline = 4});
    const int here = mesh.coordinate(Axis::pipeline), opposite = (here + 2) % 4;
    const Tensor x = context.zeros({4}, DType::f32);
    const std::string message =
        fmt::format("there is no channel from pipeline stage {} to stage {} at stage {} of 4", here, opposite, here);
    EXPECT_EQ(test::message_of<Error>([&] { mesh.send(x, opposite); }), message);
    EXPECT_THROW(mesh.receive(x, opposite), Error);
    EXPECT_THROW(mesh.send(x, here), Error);
    EXPECT_THROW(mesh.receive(x, 4), Error);
    EXPECT_THROW(Mesh(world).send(x, 0), Error) << "a mesh of one stage";
  });
  EXPECT_THROW(Mesh().send(Context::cpu().zeros({4}, DType::f32), 0), Error) << "a rank alone";
}

TEST(Mesh, a_stage_that_fails_ends_those_that_wait_for_its_messages) {
  std::array<std::string, 3> heard;
  const std::string cause = test::message_of<Error>([&] {
    run_ranks(3, [&](Communicator& world, const Context& context) {
      const Mesh mesh(world, {.pipeline = 3});
      const int here = mesh.coordinate(Axis::pipeline);
      if (here == 1) fail<Error>("this stage fails, as it was told");
      const Tensor x = context.zeros({16}, DType::f32);
      heard[static_cast<size_t>(here)] = test::message_of<CommError>([&] { mesh.receive(x, 1).wait(); });
    });
  });
  EXPECT_EQ(cause, "this stage fails, as it was told");
  for (const int waiting : {0, 2})
    EXPECT_THAT(heard[static_cast<size_t>(waiting)],
                ::testing::AllOf(::testing::HasSubstr("recv of 64 B f32"), ::testing::HasSubstr("rank 1")));
}

TEST(Mesh, a_message_that_never_comes_is_named_when_the_time_is_over) {
  const std::string message = test::message_of<CommError>([&] {
    run_ranks(2, [&](Communicator& world, const Context& context) {
      world.set_timeout(std::chrono::milliseconds(200));
      const Mesh mesh(world, {.pipeline = 2});
      const Tensor x = context.zeros({16}, DType::f32);
      if (mesh.coordinate(Axis::pipeline) == 1) mesh.send(x, 0).wait();
      mesh.receive(x, 1 - mesh.coordinate(Axis::pipeline)).wait();
      mesh.world().set_timeout(std::chrono::seconds(20));
      mesh.world().barrier().wait();
    });
  });
  EXPECT_THAT(message, ::testing::HasSubstr("recv of 64 B f32 in group of 2 timed out after 0.2s on rank 1"));
}

TEST(Mesh, a_message_arrives_though_its_sender_waits_for_nothing) {
  for (const bool guarded : {false, true})
    run_ranks(test::contexts_of(2, guarded), [](Communicator& world, const Context& context) {
      world.set_timeout(std::chrono::seconds(5));
      const Mesh mesh(world, {.pipeline = 2});
      const std::vector<float> question{2, 3}, answer{4, 6};
      const Tensor x = context.upload<float>({2}, question), y = context.empty({2}, DType::f32);
      if (mesh.coordinate(Axis::pipeline) == 0) {
        mesh.send(x, 1);  // only the answer is waited for
        world.wait(mesh.receive(y, 1), *context.stream);
        EXPECT_EQ(context.to_host<float>(y), answer);
      } else {
        world.wait(mesh.receive(y, 0), *context.stream);
        context.run(AddTo{.x = y, .into = x});
        mesh.send(x, 0);
      }
    });
}

TEST(Mesh, a_message_of_another_size_is_refused) {
  const std::string message = test::message_of<CommError>([&] {
    run_ranks(2, [&](Communicator& world, const Context& context) {
      const Mesh mesh(world, {.pipeline = 2});
      if (mesh.coordinate(Axis::pipeline) == 0) mesh.send(context.zeros({3}, DType::f32), 1).wait();
      if (mesh.coordinate(Axis::pipeline) == 1) mesh.receive(context.zeros({5}, DType::f32), 0).wait();
    });
  });
  EXPECT_THAT(message, ::testing::HasSubstr("sent f32[3] where f32[5] was expected"));
}

TEST(Mesh, a_grid_of_other_ranks_is_refused) {
  run_ranks(3, [](Communicator& world) { EXPECT_THROW(Mesh(world, {.shard = 2}), ConfigError); });
}

TEST(Mesh, ranks_on_several_hosts_meet_inside_them_and_across) {
  run_ranks(8, [](Communicator& world, const Context& context) {
    const Mesh mesh(world, {.replicate = 2, .shard = 4, .host_ranks = 2});
    const auto hosts = mesh.over_hosts(Group::parameters);
    ASSERT_TRUE(hosts);
    EXPECT_EQ(mesh.over_hosts(Group::expert_parameters)->inside, hosts->inside) << "the same ranks";
    EXPECT_FALSE(mesh.over_hosts(Group::replicas));
    const int place = mesh.group(Group::parameters).rank();
    EXPECT_EQ(hosts->inside->rank(), place % 2);
    EXPECT_EQ(hosts->across->rank(), place / 2);
    std::vector<double> one{static_cast<double>(world.rank())};
    all_reduce_values(*hosts->across, context, one);
    EXPECT_EQ(one[0], 2 * (world.rank() / 4 * 4 + world.rank() % 2) + 2);
    all_reduce_values(*hosts->inside, context, one);
    std::map<std::string, int64_t> sent;
    for (const auto& [axes, traffic] : mesh.traffic_by_axes()) sent[axes] = traffic.total_elements();
    EXPECT_EQ(sent.at("shard, inside hosts"), 1);
    EXPECT_EQ(sent.at("shard, between hosts"), 1);
    EXPECT_EQ(sent.at("shard"), 0);
  });
}

TEST(Mesh, hosts_that_say_different_numbers_of_ranks_are_not_told_apart) {
  run_ranks(6, [](Communicator& world) {
    const Mesh mesh(world, {.shard = 6, .host_ranks = world.rank() < 4 ? 2 : 3});
    EXPECT_FALSE(mesh.over_hosts(Group::parameters));
  });
}

TEST(Mesh, a_call_that_follows_another_groups_begins_when_that_is_done) {
  run_ranks(4, [](Communicator& world, const Context& context) {
    const Mesh mesh(world, {.replicate = 2, .shard = 2});
    Communicator &shards = mesh.group(Group::parameters), &replicas = mesh.group(Group::replicas);
    for (int round = 0; round < 50; ++round) {
      const Tensor x = context.upload<float>({64}, std::vector<float>(64, static_cast<float>(world.rank())));
      replicas.follow(shards.all_reduce(x));
      shards.follow(replicas.all_reduce(x));
      shards.all_reduce(x).wait();
      ASSERT_EQ(x.to_vector<float>(), std::vector<float>(64, 12)) << round;
    }
  });
}

}  // namespace
}  // namespace nought::mesh_test
