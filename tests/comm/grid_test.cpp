#include "nought/comm/grid.h"

#include <set>

#include "support/size.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::grid_test {
namespace {

using testing::ElementsAre;

Axis axis_at(int i) { return static_cast<Axis>(i); }
Group group_at(int i) { return static_cast<Group>(i); }

/// Grids with every axis at 1, 2 and 3, and experts that fit.
std::vector<Grid> small_grids() {
  std::vector<Grid> grids;
  for (const int tensor : {1, 2, 3})
    for (const int context : {1, 2})
      for (const int shard : {1, 2, 3})
        for (const int replicate : {1, 2})
          for (const int pipeline : {1, 2, 3})
            for (const int expert : {1, 2, 4, 6})
              for (const int expert_tensor : {1, 2})
                if (tensor * context * shard % (expert * expert_tensor) == 0)
                  grids.emplace_back(GridSizes{.replicate = replicate,
                                               .shard = shard,
                                               .context = context,
                                               .tensor = tensor,
                                               .pipeline = pipeline,
                                               .expert = expert,
                                               .expert_tensor = expert_tensor});
  return grids;
}

TEST(Grid, every_rank_has_coordinates_of_its_own_on_both_grids) {
  constexpr Axis kDense[] = {Axis::pipeline, Axis::replicate, Axis::shard, Axis::context, Axis::tensor};
  constexpr Axis kExperts[] = {Axis::expert_tensor, Axis::expert, Axis::expert_shard, Axis::replicate, Axis::pipeline};
  for (const Grid& grid : small_grids()) {
    std::set<std::vector<int>> dense_places, expert_places;
    for (int rank = 0; rank < grid.ranks(); ++rank) {
      const Grid::Coordinates coordinates = grid.coordinates(rank);
      const auto place_on = [&](const auto& axes) {
        std::vector<int> place;
        for (const Axis axis : axes) place.push_back(coordinates[static_cast<size_t>(axis)]);
        return place;
      };
      dense_places.insert(place_on(kDense));
      EXPECT_EQ(*dense_places.rbegin(), place_on(kDense)) << "ranks are counted along the last axis first";
      expert_places.insert(place_on(kExperts));
      for (int i = 0; i < kNumAxes; ++i) {
        EXPECT_GE(coordinates[static_cast<size_t>(i)], 0);
        EXPECT_LT(coordinates[static_cast<size_t>(i)], grid.size(axis_at(i))) << name_of(axis_at(i));
      }
    }
    EXPECT_EQ(static_cast<int>(dense_places.size()), grid.ranks());
    EXPECT_EQ(static_cast<int>(expert_places.size()), grid.ranks());
  }
}

NOUGHT_SIZE(medium);
TEST(Grid, the_groups_of_a_name_hold_every_rank_once_and_are_equally_large) {
  for (const Grid& grid : small_grids())
    for (int i = 0; i < kNumGroups; ++i) {
      SCOPED_TRACE(name_of(group_at(i)));
      const Axes axes = axes_of(group_at(i));
      std::set<int> seen;
      for (const std::vector<int>& group : grid.groups(axes)) {
        EXPECT_EQ(static_cast<int>(group.size()), grid.size(axes));
        EXPECT_TRUE(std::is_sorted(group.begin(), group.end()));
        for (const int rank : group) {
          EXPECT_TRUE(seen.insert(rank).second) << "rank " << rank << " is in two groups";
          EXPECT_EQ(grid.group(rank, group_at(i)), group);
        }
      }
      EXPECT_EQ(static_cast<int>(seen.size()), grid.ranks());
    }
}

TEST(Grid, members_of_a_group_differ_along_its_axes_and_nowhere_else) {
  constexpr Axes kExpertAxes{Axis::expert_tensor, Axis::expert, Axis::expert_shard};
  for (const Grid& grid : small_grids())
    for (int i = 0; i < kNumGroups; ++i) {
      const Axes axes = axes_of(group_at(i));
      for (int k = 0; k < kNumAxes; ++k) {
        const Axis axis = axis_at(k);
        // The two grids number the same ranks: only the axes of the group's own one stay where they are.
        const bool shared = axis == Axis::replicate || axis == Axis::pipeline;
        const bool same_grid = shared || Axes{axis}.meets(kExpertAxes) == axes.meets(kExpertAxes);
        if (axes.has(axis) || !same_grid) continue;
        for (const int peer : grid.group(0, axes))
          EXPECT_EQ(grid.coordinate(peer, axis), grid.coordinate(0, axis)) << name_of(group_at(i)) << name_of(axis);
      }
    }
}

TEST(Grid, numbers_ranks_as_megatron_lm_does) {
  const Grid grid({.shard = 2, .context = 2, .tensor = 2, .pipeline = 2});
  EXPECT_THAT(grid.group(0, Group::tensor), ElementsAre(0, 1));
  EXPECT_THAT(grid.group(0, Group::context), ElementsAre(0, 2));
  EXPECT_THAT(grid.group(0, Group::samples), ElementsAre(0, 4));
  EXPECT_THAT(grid.group(0, Group::holders), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(grid.group(0, Group::parameters), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(grid.group(0, Group::pipeline), ElementsAre(0, 8));
  EXPECT_THAT(grid.group(13, Group::parameters), ElementsAre(9, 11, 13, 15));
}

TEST(Grid, experts_lie_on_a_second_grid_over_the_same_ranks) {
  // DeepSpeed's example of 16 ranks, tensor 2, expert 4.
  const Grid grid({.shard = 8, .tensor = 2, .expert = 4, .expert_tensor = 2});
  EXPECT_EQ(grid.size(Axis::expert_shard), 2);
  EXPECT_THAT(grid.group(0, Group::experts), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(grid.group(9, Group::experts), ElementsAre(9, 11, 13, 15));
  EXPECT_THAT(grid.group(2, Group::expert_parameters), ElementsAre(2, 10));
  EXPECT_THAT(grid.group(2, Group::expert_tensor), ElementsAre(2, 3));
  // The folding of arXiv 2504.14960: tensor 4, context 2, data 8, pipeline 4 may hold experts over 64 ranks.
  const Grid folded({.shard = 8, .context = 2, .tensor = 4, .pipeline = 4, .expert = 64});
  EXPECT_EQ(folded.size(Axis::expert_shard), 1);
  EXPECT_EQ(folded.group(70, Group::experts).size(), 64u);
  EXPECT_THAT(folded.group(70, Group::pipeline), ElementsAre(6, 70, 134, 198));
}

TEST(Grid, replicas_hold_the_same_shards) {
  const Grid grid({.replicate = 2, .shard = 3});
  EXPECT_THAT(grid.group(0, Group::parameters), ElementsAre(0, 1, 2));
  EXPECT_THAT(grid.group(4, Group::parameters), ElementsAre(3, 4, 5));
  EXPECT_THAT(grid.group(4, Group::replicas), ElementsAre(1, 4));
  EXPECT_THAT(grid.group(4, Group::samples), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(Grid, groups_on_several_hosts_are_cut_inside_them_and_across) {
  using Ranks = std::vector<std::vector<int>>;
  const auto levels = Grid({.replicate = 2, .shard = 6, .host_ranks = 3}).levels(axes_of(Group::parameters));
  ASSERT_TRUE(levels);
  EXPECT_EQ(levels->inside, (Ranks{{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {9, 10, 11}}));
  EXPECT_EQ(levels->across, (Ranks{{0, 3}, {1, 4}, {2, 5}, {6, 9}, {7, 10}, {8, 11}}));
  const auto beside = Grid({.shard = 4, .tensor = 2, .host_ranks = 4}).levels(axes_of(Group::parameters));
  ASSERT_TRUE(beside);
  EXPECT_EQ(beside->inside, (Ranks{{0, 2}, {4, 6}, {1, 3}, {5, 7}}));
  EXPECT_EQ(beside->across, (Ranks{{0, 4}, {2, 6}, {1, 5}, {3, 7}}));
  // One host; one rank on each; hosts of which one has more ranks of a group than the other; nothing said of hosts.
  for (const GridSizes& sizes :
       {GridSizes{.replicate = 2, .shard = 2, .host_ranks = 2}, GridSizes{.shard = 2, .tensor = 2, .host_ranks = 2},
        GridSizes{.shard = 6, .host_ranks = 4}, GridSizes{.replicate = 2, .shard = 4, .host_ranks = 3},
        GridSizes{.shard = 4}})
    EXPECT_FALSE(Grid(sizes).levels(axes_of(Group::parameters))) << sizes.shard << " " << sizes.host_ranks;
}

TEST(Grid, tensor_ranks_see_the_same_tokens_and_never_add_them_up) {
  for (const Group group : {Group::losses, Group::metrics, Group::balance})
    EXPECT_FALSE(axes_of(group).has(Axis::tensor)) << name_of(group);
  // But every element of a norm counts, wherever it lies, and all ranks decide together.
  const Grid grid({.replicate = 2, .shard = 2, .context = 2, .tensor = 2, .pipeline = 2});
  EXPECT_EQ(grid.size(axes_of(Group::norm)), grid.ranks());
  EXPECT_EQ(grid.size(axes_of(Group::decisions)), grid.ranks());
}

TEST(Grid, axes_are_described_by_the_ranks_that_differ_along_them) {
  EXPECT_EQ(describe(Grid({.shard = 2, .tensor = 2})),
            (std::vector<std::string>{"tensor          2   ranks 0 1 | 2 3", "shard           2   ranks 0 2 | 1 3"}));
  EXPECT_EQ(describe(Grid({.shard = 5, .tensor = 8}))[0],
            "tensor          8   ranks 0 1 2 3 ... | 8 9 10 11 ... | 16 17 18 19 ... | 24 25 26 27 ... | ...");
  EXPECT_TRUE(describe(Grid({})).empty());
  EXPECT_EQ(describe(Grid({.shard = 4, .tensor = 2, .expert = 2, .expert_tensor = 2})),
            (std::vector<std::string>{"tensor          2   ranks 0 1 | 2 3 | 4 5 | 6 7",  //
                                      "shard           4   ranks 0 2 4 6 | 1 3 5 7",
                                      "expert          2   ranks 0 2 | 1 3 | 4 6 | 5 7",
                                      "expert_shard    2   ranks 0 4 | 1 5 | 2 6 | 3 7"}))
      << "experts of one rank of a tensor group are exchanged with its like of the next";
}

TEST(Grid, what_is_not_a_mesh_is_refused) {
  EXPECT_THROW(Grid({.tensor = 0}), ConfigError);
  EXPECT_THROW(Grid({.expert = -1}), ConfigError);
  EXPECT_THROW(Grid({.shard = 4, .expert = 3}), ConfigError);
  EXPECT_THROW(Grid({.replicate = 4, .expert = 4}), ConfigError) << "experts are spread within a replica";
  const Grid grid({.shard = 4, .tensor = 2, .expert = 2});
  EXPECT_THROW(grid.coordinates(8), Error);
  EXPECT_THROW(grid.coordinates(-1), Error);
  EXPECT_THROW(grid.group(0, {Axis::tensor, Axis::expert}), Error);
}

}  // namespace
}  // namespace nought::grid_test
