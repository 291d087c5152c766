#include "nought/zero/partition.h"

#include "support/small_units.h"
#include <gtest/gtest.h>

#include "nought/zero/policy.h"

namespace nought::partition_test {
namespace {

TEST(Partition, shards_are_equal_aligned_and_hold_every_element_once) {
  for (const int64_t size : {1, 31, 32, 33, 64, 1000, 4097})
    for (const int ranks : {1, 2, 3, 4, 7}) {
      const Partition partition(size, ranks);
      SCOPED_TRACE(fmt::format("{} elements over {} ranks", size, ranks));
      EXPECT_EQ(partition.shard() % Partition::kAlignment, 0);
      EXPECT_GE(partition.padded(), size);
      EXPECT_LT(partition.padded(), size + ranks * Partition::kAlignment) << "no more padding than alignment needs";
      int64_t end = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Interval owned = partition.owned(rank);
        EXPECT_EQ(owned.begin, end);
        EXPECT_EQ(owned.size(), partition.shard());
        end = owned.end;
      }
      EXPECT_EQ(end, partition.padded());
    }
}

TEST(Partition, virtual_ranks_own_the_same_on_any_number_of_ranks) {
  for (const int64_t size : {1, 31, 257, 5000, 8192}) {
    Segment segment;
    segment.size = size;
    const Partition eight(segment, 8, 8);
    EXPECT_EQ(eight.shard(), Partition(segment, 8).shard());
    for (const int ranks : {1, 2, 4}) {
      const Partition fewer(segment, ranks, 8);
      EXPECT_EQ(fewer.padded(), eight.padded());
      ASSERT_EQ(fewer.virtual_shards(), 8 / ranks);
      for (int rank = 0; rank < 8; ++rank) {
        const int64_t begin = fewer.owned(rank / fewer.virtual_shards()).begin;
        const Interval part = fewer.virtual_shard(rank % fewer.virtual_shards());
        EXPECT_EQ((Interval{begin + part.begin, begin + part.end}), eight.owned(rank));
      }
    }
  }
}

TEST(Partition, a_unit_without_parameters_has_empty_shards) {
  const Partition nothing(0, 4);
  EXPECT_EQ(nothing.padded(), 0);
  EXPECT_TRUE(nothing.owned(3).empty());
}

TEST(Partition, pieces_of_all_ranks_are_every_parameter_once_and_in_order) {
  for (const auto& unit : test::small_units())
    for (const int ranks : {1, 2, 3, 5}) {
      const Partition partition(unit->segments()[0].size, ranks);
      std::vector<int64_t> reached(unit->parameters().size(), 0);
      int64_t last = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Interval owned = partition.owned(rank);
        for (const ParameterPiece& piece : pieces_in(*unit, 0, owned)) {
          const Parameter& parameter = unit->parameters()[piece.parameter];
          EXPECT_EQ(piece.in_parameter.begin, reached[piece.parameter]) << parameter.name << " has a hole";
          EXPECT_EQ(piece.in_segment.begin, parameter.range.begin + piece.in_parameter.begin);
          EXPECT_EQ(piece.in_segment.size(), piece.in_parameter.size());
          EXPECT_TRUE(owned.begin <= piece.in_segment.begin && piece.in_segment.end <= owned.end);
          EXPECT_GE(piece.in_segment.begin, last);
          last = piece.in_segment.end;
          reached[piece.parameter] = piece.in_parameter.end;
        }
      }
      for (size_t i = 0; i < reached.size(); ++i) EXPECT_EQ(reached[i], unit->parameters()[i].shape.numel());
    }
}

TEST(Partition, padding_and_empty_intervals_belong_to_no_parameter) {
  const auto units = test::small_units();
  const Unit& second = *units[1];
  EXPECT_TRUE(pieces_in(second, 0, {second.numel(), second.numel() + 32}).empty());
  EXPECT_TRUE(pieces_in(second, 0, {10, 10}).empty());
  const std::vector<ParameterPiece> border =
      pieces_in(second, 0, {4, 6});  // the last of one parameter and the first of the next
  ASSERT_EQ(border.size(), 2u);
  EXPECT_EQ(border[0].in_parameter, (Interval{4, 5}));
  EXPECT_EQ(border[1].in_parameter, (Interval{0, 1}));
}

TEST(Partition, gaps_are_what_no_parameter_fills) {
  const auto units = test::small_units();
  EXPECT_EQ(gaps_in(*units[0], 0, 128), (std::vector<Interval>{{111, 112}, {118, 128}}));
  EXPECT_EQ(gaps_in(*units[1], 0, 128), (std::vector<Interval>{{79, 128}})) << "joined parameters leave none";
  EXPECT_EQ(gaps_in(*units[1], 0, 79), std::vector<Interval>{});
}

TEST(Partition, every_segment_is_cut_by_itself) {
  const auto units = test::small_units();
  units[0]->choose_trained([](const Parameter& parameter) { return parameter.name == "first.bias"; });
  units[2]->choose_trained([](const Parameter&) { return false; });
  EXPECT_EQ(segments_of(units, /*trainable=*/true), (std::vector<SegmentIndex>{{0, 1}, {1, 0}}));
  EXPECT_EQ(segments_of(units, /*trainable=*/false), (std::vector<SegmentIndex>{{0, 0}, {2, 0}}));
  const std::vector<ParameterPiece> pieces = pieces_in(*units[0], 1, {2, 32});
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].parameter, 1u);
  EXPECT_EQ(pieces[0].in_parameter, (Interval{2, 6}));
  EXPECT_EQ(gaps_in(*units[0], 1, 32), (std::vector<Interval>{{6, 32}}));
}

TEST(Policy, each_stage_shards_one_thing_more) {
  for (const int stage : {0, 1, 2, 3}) {
    const Policy policy = Policy::stage(stage);
    EXPECT_EQ(policy.shard_optimizer + policy.shard_gradients + policy.shard_parameters, stage);
    EXPECT_GE(policy.shard_optimizer, policy.shard_gradients);
    EXPECT_GE(policy.shard_gradients, policy.shard_parameters);
    const Policy alone = policy.for_ranks(1);
    EXPECT_FALSE(alone.shard_optimizer || alone.shard_gradients || alone.shard_parameters);
    EXPECT_EQ(policy.for_ranks(2).shard_parameters, policy.shard_parameters);
  }
  for (const int stage : {-1, 4}) EXPECT_THROW(Policy::stage(stage), ConfigError);
}

}  // namespace
}  // namespace nought::partition_test
