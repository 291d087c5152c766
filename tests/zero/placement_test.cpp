// Random placements over 1 to 4 dimensions against a plain oracle: who holds each single element.
#include "nought/zero/placement.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "support/size.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/zero/partition.h"

namespace nought::placement_test {
namespace {

using testing::ElementsAre;

constexpr int kCases = 400;

/// Whole numbers in [least, most].
class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  int64_t operator()(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(engine_);
  }
  std::mt19937& engine() { return engine_; }

 private:
  std::mt19937 engine_;
};

Grid random_grid(Random& random) {
  GridSizes sizes{.replicate = static_cast<int>(random(1, 2)),
                  .shard = static_cast<int>(random(1, 4)),
                  .context = static_cast<int>(random(1, 2)),
                  .tensor = static_cast<int>(random(1, 4))};
  const int inner = sizes.shard * sizes.context * sizes.tensor;
  sizes.expert = static_cast<int>(random(1, 4));
  if (inner % sizes.expert != 0) sizes.expert = 1;
  sizes.expert_tensor = inner / sizes.expert % 2 == 0 ? 2 : 1;
  return Grid(sizes);
}

/// Extents down to 0; cuts of up to three dimensions, of whole and of fused tensors, in granules that may not divide;
/// and owners, of dimensions that may be cut, too.
Placement random_placement(Random& random, const Shape& shape, const Grid& grid) {
  std::vector<int> dims(static_cast<size_t>(shape.rank()));
  std::iota(dims.begin(), dims.end(), 0);
  std::shuffle(dims.begin(), dims.end(), random.engine());
  std::vector<Axis> axes{Axis::tensor, Axis::context, Axis::shard};
  if (random(0, 1) == 1) axes = {Axis::expert_tensor, Axis::expert, Axis::expert_shard};
  std::shuffle(axes.begin(), axes.end(), random.engine());
  Placement placement{shape};
  const auto cuts = static_cast<size_t>(random(0, std::min<int64_t>(3, shape.rank())));
  for (size_t i = 0; i < cuts; ++i) {
    Cut cut{.axis = axes[i], .dim = dims[i], .granule = random(1, 3)};
    if (random(0, 1) == 1)
      for (int64_t rest = shape[cut.dim]; rest > 0; rest -= cut.fused.back()) cut.fused.push_back(random(1, rest));
    if (random(0, 3) == 0) {
      cut.owner = static_cast<int>(random(0, grid.size(cut.axis) - 1));
      cut.dim = static_cast<int>(random(0, shape.rank() - 1)), cut.fused.clear();
    }
    placement.cuts.push_back(std::move(cut));
  }
  return placement;
}

Shape random_shape(Random& random) {
  Shape shape;
  for (int64_t rank = random(1, 4); rank > 0; --rank) shape.push_back(random(random(0, 9) == 0 ? 0 : 1, 9));
  return shape;
}

/// Where an index along a cut dimension goes, by the words of Cut alone.
int part_of_index(const Cut& cut, int64_t extent, int64_t index, int parts) {
  if (cut.owner) return *cut.owner;
  const std::vector<int64_t> tensors = cut.fused.empty() ? std::vector<int64_t>{extent} : cut.fused;
  size_t tensor = 0;
  while (index >= tensors[tensor]) index -= tensors[tensor++];
  const int64_t granules = (tensors[tensor] + cut.granule - 1) / cut.granule;
  const int64_t most = (granules + parts - 1) / parts;
  return static_cast<int>(index / cut.granule / most);
}

std::vector<int64_t> index_of(const Shape& shape, int64_t element) {
  std::vector<int64_t> index(static_cast<size_t>(shape.rank()));
  for (int dim = shape.rank() - 1; dim >= 0; --dim) {
    index[static_cast<size_t>(dim)] = element % shape[dim];
    element /= shape[dim];
  }
  return index;
}

/// The elements of the flattened global tensor that a rank holds, in its order.
std::vector<int64_t> held_elements(const Placement& placement, const Grid& grid, int rank) {
  std::vector<int64_t> held;
  for (int64_t element = 0; element < placement.global.numel(); ++element) {
    const std::vector<int64_t> index = index_of(placement.global, element);
    const bool mine = std::all_of(placement.cuts.begin(), placement.cuts.end(), [&](const Cut& cut) {
      const int part =
          part_of_index(cut, placement.global[cut.dim], index[static_cast<size_t>(cut.dim)], grid.size(cut.axis));
      return part == grid.coordinate(rank, cut.axis);
    });
    if (mine) held.push_back(element);
  }
  return held;
}

std::vector<int64_t> expand(const std::vector<Interval>& intervals) {
  std::vector<int64_t> elements;
  for (const Interval& interval : intervals)
    for (int64_t i = interval.begin; i < interval.end; ++i) elements.push_back(i);
  return elements;
}

std::vector<int64_t> expand_global(const std::vector<PartRun>& runs) {
  std::vector<Interval> intervals;
  for (const PartRun& run : runs) intervals.push_back(run.global);
  return expand(intervals);
}

NOUGHT_SIZE(medium);
TEST(Placement, a_rank_holds_what_the_cuts_say_in_the_order_of_the_global_tensor) {
  Random random(1);
  for (int i = 0; i < kCases; ++i) {
    SCOPED_TRACE(i);
    const Grid grid = random_grid(random);
    const Placement placement = random_placement(random, random_shape(random), grid);
    const PlacedTensor placed(placement, grid);
    for (int rank = 0; rank < grid.ranks(); ++rank) {
      const TensorPart part = placed.held_by(rank);
      const std::vector<int64_t> expected = held_elements(placement, grid, rank);
      ASSERT_EQ(expand_global(part.runs()), expected);
      EXPECT_EQ(part.local().numel(), static_cast<int64_t>(expected.size()));
      EXPECT_EQ(part.local().rank(), placement.global.rank());
    }
  }
}

TEST(Placement, every_element_is_in_exactly_one_part) {
  Random random(2);
  for (int i = 0; i < kCases; ++i) {
    SCOPED_TRACE(i);
    const Grid grid = random_grid(random);
    const Placement placement = random_placement(random, random_shape(random), grid);
    const PlacedTensor placed(placement, grid);
    std::vector<int> owners(static_cast<size_t>(placement.global.numel()));
    for (int part = 0; part < placed.parts(); ++part)
      for (const int64_t element : expand_global(placed.part(part).runs())) ++owners[static_cast<size_t>(element)];
    EXPECT_EQ(std::count(owners.begin(), owners.end(), 1), placement.global.numel());
    std::vector<int> holders(static_cast<size_t>(placed.parts()));
    for (int rank = 0; rank < grid.ranks(); ++rank) ++holders[static_cast<size_t>(placed.part_of(rank))];
    for (const int count : holders) EXPECT_EQ(count, grid.ranks() / placed.parts());
  }
}

TEST(Placement, any_interval_of_a_part_maps_to_its_elements_in_runs_that_do_not_touch) {
  Random random(3);
  for (int i = 0; i < kCases; ++i) {
    SCOPED_TRACE(i);
    const Grid grid = random_grid(random);
    const Placement placement = random_placement(random, random_shape(random), grid);
    const int rank = static_cast<int>(random(0, grid.ranks() - 1));
    const TensorPart part = PlacedTensor(placement, grid).held_by(rank);
    const std::vector<int64_t> held = held_elements(placement, grid, rank);
    const int64_t begin = random(0, static_cast<int64_t>(held.size()));
    const int64_t end = random(begin, static_cast<int64_t>(held.size()));
    const std::vector<PartRun> runs = part.runs({begin, end});
    EXPECT_EQ(expand_global(runs), std::vector<int64_t>(held.begin() + begin, held.begin() + end));
    int64_t reached = begin, last = -1;
    for (const PartRun& run : runs) {
      EXPECT_EQ(run.local.begin, reached);
      EXPECT_EQ(run.local.size(), run.global.size());
      EXPECT_FALSE(run.local.empty());
      EXPECT_NE(run.global.begin, last) << "two runs that are one";
      reached = run.local.end, last = run.global.end;
    }
    EXPECT_EQ(reached, end);
  }
}

/// What every part of `target` holds when each holds its share of `elements` by `source` before.
std::vector<std::vector<int64_t>> moved(const std::vector<std::vector<int64_t>>& parts, const PlacedTensor& source,
                                        const PlacedTensor& target) {
  std::vector<std::vector<int64_t>> result;
  for (int index = 0; index < target.parts(); ++index) {
    std::vector<int64_t> got(static_cast<size_t>(target.part(index).local().numel()), -1);
    int64_t reached = 0;
    for (const Transfer& transfer : reshard(source, target, index)) {
      EXPECT_EQ(transfer.to, reached) << "each element once, and none is left out";
      reached = transfer.to + transfer.size;
      const std::vector<int64_t>& from = parts[static_cast<size_t>(transfer.part)];
      std::copy_n(from.begin() + transfer.from, transfer.size, got.begin() + transfer.to);
    }
    EXPECT_EQ(reached, static_cast<int64_t>(got.size()));
    result.push_back(std::move(got));
  }
  return result;
}

std::vector<std::vector<int64_t>> parts_of(const PlacedTensor& placed) {
  std::vector<std::vector<int64_t>> parts;
  for (int part = 0; part < placed.parts(); ++part) parts.push_back(expand_global(placed.part(part).runs()));
  return parts;
}

NOUGHT_SIZE(medium);
TEST(Placement, any_placement_becomes_any_other_and_comes_back) {
  Random random(5);
  for (int i = 0; i < kCases; ++i) {
    SCOPED_TRACE(i);
    const Shape shape = random_shape(random);
    const Grid grid = random_grid(random), other_grid = random_grid(random);
    const PlacedTensor one(random_placement(random, shape, grid), grid);
    const PlacedTensor other(random_placement(random, shape, other_grid), other_grid);
    const std::vector<std::vector<int64_t>> begin = parts_of(one), there = moved(begin, one, other);
    ASSERT_EQ(there, parts_of(other)) << "each element of the target is the global one";
    EXPECT_EQ(moved(there, other, one), begin);
  }
}

TEST(Placement, a_placement_becomes_itself_in_one_transfer_per_part) {
  Random random(6);
  for (int i = 0; i < kCases; ++i) {
    const Grid grid = random_grid(random);
    const PlacedTensor placed(random_placement(random, random_shape(random), grid), grid);
    for (int part = 0; part < placed.parts(); ++part) {
      const int64_t numel = placed.part(part).local().numel();
      const std::vector<Transfer> expected(numel > 0 ? 1 : 0, Transfer{part, 0, 0, numel});
      EXPECT_EQ(reshard(placed, placed, part), expected);
    }
  }
}

TEST(Placement, fused_heads_are_cut_one_by_one) {
  // q of 4 heads, k and v of 2, each of 3 rows: the second of two ranks has heads 2 and 3 of q, and head 1 of k and v.
  const Grid grid({.tensor = 2});
  const PlacedTensor placed({{24, 5}, {{.axis = Axis::tensor, .dim = 0, .granule = 3, .fused = {12, 6, 6}}}}, grid);
  const TensorPart second = placed.held_by(1);
  EXPECT_EQ(second.local(), (Shape{12, 5}));
  EXPECT_THAT(second.runs(),
              ElementsAre(PartRun{{0, 30}, {30, 60}}, PartRun{{30, 45}, {75, 90}}, PartRun{{45, 60}, {105, 120}}));
  // A plain cut of the same rows is one interval, and getting there crosses ranks.
  const PlacedTensor plain({{24, 5}, {{.axis = Axis::tensor, .dim = 0}}}, grid);
  EXPECT_THAT(plain.held_by(1).runs(), ElementsAre(PartRun{{0, 60}, {60, 120}}));
  EXPECT_THAT(reshard(placed, plain, 1), ElementsAre(Transfer{0, 30, 0, 15}, Transfer{1, 30, 15, 15},
                                                     Transfer{0, 45, 30, 15}, Transfer{1, 45, 45, 15}));
}

TEST(Placement, gate_and_up_of_experts_are_cut_along_two_axes) {
  // 4 experts over 2 ranks, and gate and up of each over 2.
  const Grid grid({.shard = 4, .expert = 2, .expert_tensor = 2});
  const Placement placement{
      {4, 6, 2}, {{.axis = Axis::expert, .dim = 0}, {.axis = Axis::expert_tensor, .dim = 1, .fused = {3, 3}}}};
  const PlacedTensor placed(placement, grid);
  EXPECT_EQ(placed.parts(), 4);
  // Rank 3 has the last experts, and what is left of gate and up: rows 2 and 5, as 2 of 3 rows are the first rank's.
  const TensorPart part = placed.held_by(3);
  EXPECT_EQ(part.local(), (Shape{2, 2, 2}));
  EXPECT_THAT(part.runs(), ElementsAre(PartRun{{0, 2}, {28, 30}}, PartRun{{2, 4}, {34, 36}}, PartRun{{4, 6}, {40, 42}},
                                       PartRun{{6, 8}, {46, 48}}));
}

TEST(Placement, one_rank_has_all_that_it_owns_and_others_an_empty_part) {
  // Gate of the third of 4 experts over 2 ranks, whose rows 2 ranks share.
  const Grid grid({.shard = 4, .expert = 2, .expert_tensor = 2});
  const PlacedTensor placed({{6, 2}, {{.axis = Axis::expert, .owner = 1}, {.axis = Axis::expert_tensor}}}, grid);
  EXPECT_THAT(placed.held_by(3).runs(), ElementsAre(PartRun{{0, 6}, {6, 12}}));
  EXPECT_EQ(placed.held_by(2).local(), (Shape{3, 2}));
  for (const int other : {0, 1}) {
    EXPECT_EQ(placed.held_by(other).local(), (Shape{0, 2}));
    EXPECT_TRUE(placed.held_by(other).runs().empty());
  }
}

TEST(Placement, more_ranks_than_granules_leave_the_last_ones_nothing) {
  const Grid grid({.tensor = 4});
  const PlacedTensor placed({{7, 2}, {{.axis = Axis::tensor, .dim = 0, .granule = 3}}}, grid);  // 3, 3, 1
  EXPECT_EQ(placed.held_by(2).local(), (Shape{1, 2}));
  EXPECT_EQ(placed.held_by(3).local(), (Shape{0, 2}));
  EXPECT_TRUE(placed.held_by(3).runs().empty());
}

TEST(Placement, shards_of_a_part_are_runs_of_the_global_tensor) {
  // What a rank holds of a matrix cut along its columns, shared out by ZeRO over 3 ranks.
  const Grid grid({.shard = 3, .tensor = 2});
  const TensorPart part = PlacedTensor({{40, 6}, {{.axis = Axis::tensor, .dim = 1}}}, grid).held_by(1);
  const Partition partition(part.local().numel(), 3);
  std::vector<int64_t> elements;
  for (int shard = 0; shard < 3; ++shard)
    for (const int64_t element : expand_global(part.runs(intersect(partition.owned(shard), {0, part.local().numel()}))))
      elements.push_back(element);
  std::vector<int64_t> expected;
  for (int64_t element = 0; element < 240; ++element)
    if (element % 6 >= 3) expected.push_back(element);
  EXPECT_EQ(elements, expected);
}

/// Two tensors of 6 and 3 rows lie one behind the other: the second of two tiles has rows 3 to 5 and the last one;
/// ranks cut these as they would cut fused tensors of 3 and 1 rows.
TEST(Placement, ranks_cut_a_tile_as_a_tensor_of_its_own) {
  const Placement tile{.global = {9, 2}, .tile = tile_of({9, 2}, 0, {6, 3}, 1, 2)};
  EXPECT_FALSE(tile.is_whole());
  EXPECT_EQ(tile.extents(), (Shape{4, 2}));
  const TensorPart alone = PlacedTensor(tile, Grid(GridSizes{})).part(0);
  EXPECT_EQ(alone.local(), (Shape{4, 2}));
  EXPECT_THAT(alone.runs(), ElementsAre(PartRun{{0, 6}, {6, 12}}, PartRun{{6, 8}, {16, 18}}));
  Placement cut = tile;
  cut.cuts.push_back({.axis = Axis::tensor, .dim = 0, .fused = {3, 1}});
  const PlacedTensor placed(cut, Grid({.tensor = 2}));
  EXPECT_THAT(placed.part(0).runs(), ElementsAre(PartRun{{0, 4}, {6, 10}}, PartRun{{4, 6}, {16, 18}}));
  EXPECT_THAT(placed.part(1).runs(), ElementsAre(PartRun{{0, 2}, {10, 12}}));
  EXPECT_THAT(reshard(placed, PlacedTensor(tile, Grid({.tensor = 2})), 0),
              ElementsAre(Transfer{0, 0, 0, 4}, Transfer{1, 0, 4, 2}, Transfer{0, 4, 6, 2}));
  const Placement columns{
      .global = {3, 8}, .cuts = {{.axis = Axis::tensor, .dim = 0}}, .tile = TensorTile{1, {{2, 5}}}};
  EXPECT_EQ(PlacedTensor(columns, Grid({.tensor = 3})).part(2).local(), (Shape{1, 3}));
  EXPECT_THAT(PlacedTensor(columns, Grid({.tensor = 3})).part(2).runs(), ElementsAre(PartRun{{0, 3}, {18, 21}}));
}

TEST(Placement, cuts_that_do_not_fit_are_refused) {
  const Grid grid({.tensor = 2});
  const auto place = [&](std::vector<Cut> cuts) { PlacedTensor({{8, 4}, std::move(cuts)}, grid); };
  EXPECT_THROW(place({{.dim = 2}}), ShapeError);
  EXPECT_THROW(place({{.dim = -1}}), ShapeError);
  EXPECT_THROW(place({{.dim = 0, .granule = 0}}), ShapeError);
  EXPECT_THROW(place({{.dim = 0, .fused = {4, 3}}}), ShapeError);
  EXPECT_THROW(place({{.dim = 0}, {.axis = Axis::context, .dim = 0}}), ShapeError);
  EXPECT_THROW(place({{.dim = 0}, {.dim = 1}}), ShapeError) << "two cuts along one axis";
  EXPECT_THROW(place({{.dim = 0}, {.axis = Axis::expert, .dim = 1}}), ShapeError) << "axes of two grids";
  EXPECT_THROW(place({{.owner = 2}}), ShapeError) << "there are two ranks";
  EXPECT_THROW(place({{.owner = -1}}), ShapeError);
  const PlacedTensor placed({{8, 4}, {{.dim = 0}}}, grid), other({{4, 8}}, grid);
  EXPECT_THROW(reshard(placed, other, 0), ShapeError);
  EXPECT_THROW(placed.part(2), Error);
  EXPECT_THROW(placed.part(0).runs({0, 17}), ShapeError);
  using Kept = std::vector<std::vector<Interval>>;
  const std::vector<Interval> rows{Interval{0, 3}}, columns{Interval{2, 5}};
  EXPECT_THROW(TensorPart(Shape{8, 4}, Kept{rows}), ShapeError) << "one of two dimensions";
  EXPECT_THROW(TensorPart(Shape{8, 4}, Kept{rows, columns}), ShapeError) << "there are 4 columns";
}

}  // namespace
}  // namespace nought::placement_test
