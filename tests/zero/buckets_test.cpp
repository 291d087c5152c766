// Buckets hold consecutive segments up to a limit, each at its place.
#include "nought/zero/buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::buckets_test {
namespace {

using testing::ElementsAre;

using Groups = std::vector<std::vector<size_t>>;

Groups groups_of(const std::vector<int64_t>& sizes, int ranks, int64_t limit, BucketOrder order) {
  std::vector<SharedSegment> segments;
  for (const int64_t size : sizes) segments.push_back({Partition(size, ranks)});
  Groups groups;
  for (const Bucket& bucket : make_buckets(segments, limit, order)) groups.push_back(bucket.members());
  return groups;
}

TEST(Buckets, consecutive_segments_share_a_bucket_up_to_its_limit) {
  const std::vector<int64_t> sizes{640, 64, 64, 64, 640};
  EXPECT_EQ(groups_of(sizes, 2, 128, BucketOrder::forward), (Groups{{0}, {1, 2}, {3}, {4}}));
  EXPECT_EQ(groups_of(sizes, 2, 128, BucketOrder::backward), (Groups{{4}, {3, 2}, {1}, {0}}));
  EXPECT_EQ(groups_of(sizes, 2, 1'000'000, BucketOrder::backward), (Groups{{4, 3, 2, 1, 0}}));
}

TEST(Buckets, padding_counts) {
  EXPECT_EQ(groups_of({65, 65}, 2, 130, BucketOrder::forward), (Groups{{0}, {1}}));
  EXPECT_EQ(groups_of({65, 65}, 2, 256, BucketOrder::forward), (Groups{{0, 1}}));
}

TEST(Buckets, a_segment_travels_alone_without_a_limit_or_without_other_ranks) {
  EXPECT_EQ(groups_of({64, 64}, 2, 0, BucketOrder::forward), (Groups{{0}, {1}}));
  EXPECT_EQ(groups_of({64, 64}, 1, 1'000'000, BucketOrder::forward), (Groups{{0}, {1}}));
}

TEST(Buckets, what_is_to_be_alone_shares_with_none_of_its_neighbours) {
  const Partition partition(64, 2);
  const std::vector<SharedSegment> segments{
      {partition}, {.partition = partition, .alone = true}, {partition}, {partition}};
  for (const BucketOrder order : {BucketOrder::forward, BucketOrder::backward}) {
    Groups groups;
    for (const Bucket& bucket : make_buckets(segments, 1000, order)) groups.push_back(bucket.members());
    EXPECT_THAT(groups, testing::Contains(ElementsAre(1u)));
  }
}

TEST(Buckets, each_group_of_ranks_fills_buckets_of_its_own) {
  const auto all = make_self_communicator(), some = make_self_communicator();
  const Partition of_all(64, 4), of_some(64, 2);  // padded to 128 and to 64
  const std::vector<SharedSegment> segments{
      {of_all, all.get()}, {of_some, some.get()}, {of_all, all.get()}, {of_some, some.get()}, {of_some, some.get()}};
  const auto made = [&](int64_t limit, BucketOrder order) {
    Groups groups;
    for (const Bucket& bucket : make_buckets(segments, limit, order)) {
      groups.push_back(bucket.members());
      for (const size_t member : bucket.members()) EXPECT_EQ(&bucket.group(), segments[member].ranks);
    }
    return groups;
  };
  EXPECT_EQ(made(1000, BucketOrder::forward), (Groups{{0, 2}, {1, 3, 4}}));
  EXPECT_EQ(made(1000, BucketOrder::backward), (Groups{{4, 3, 1}, {2, 0}}));
  EXPECT_EQ(made(128, BucketOrder::forward), (Groups{{0}, {1, 3}, {2}, {4}}));
}

TEST(Buckets, what_is_kept_apart_fills_a_lane_of_its_own) {
  const Partition partition(64, 2);
  const Axes tensor{Axis::tensor};
  const std::vector<SharedSegment> segments{
      {.partition = partition, .apart = tensor}, {partition}, {.partition = partition, .apart = tensor}, {partition}};
  const std::vector<Bucket> buckets = make_buckets(segments, 1000, BucketOrder::forward);
  ASSERT_EQ(buckets.size(), 2U);
  EXPECT_THAT(buckets[0].members(), ElementsAre(0, 2));
  EXPECT_THAT(buckets[1].members(), ElementsAre(1, 3));
  EXPECT_NE(buckets[0].lane(), buckets[1].lane());
}

TEST(Buckets, the_shards_of_a_rank_lie_side_by_side) {
  const Context context = Context::reference();
  const std::vector<SharedSegment> segments{{Partition(64, 2)}, {Partition(128, 2)}};
  const Bucket bucket = make_buckets(segments, 1000, BucketOrder::backward).front();
  ASSERT_THAT(bucket.members(), ElementsAre(1, 0));
  EXPECT_EQ(bucket.shard(), 96);
  const Tensor packed = context.zeros({bucket.numel()}, DType::f32);
  for (int rank = 0; rank < 2; ++rank)
    for (size_t place = 0; place < 2; ++place) {
      const Tensor part = bucket.part(packed, rank, place);
      EXPECT_EQ(part.numel(), place == 0 ? 64 : 32);
      for (int64_t i = 0; i < part.numel(); ++i) part.data<float>()[i] = static_cast<float>(10 * rank + place + 1);
    }
  const std::vector<float> values = packed.to_vector<float>();
  std::vector<float> expected;
  for (const float value : {1.f, 2.f, 11.f, 12.f})
    expected.insert(expected.end(), value == 1.f || value == 11.f ? 64 : 32, value);
  EXPECT_EQ(values, expected);
  EXPECT_EQ(bucket.part(packed, 1).to_vector<float>(), std::vector<float>(expected.begin() + 96, expected.end()));
}

}  // namespace
}  // namespace nought::buckets_test
