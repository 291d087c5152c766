#include "nought/zero/buckets.h"

#include <algorithm>
#include <optional>

namespace nought {

namespace {

/// Where segments that may share a bucket meet.
struct Lane {
  const Communicator* ranks;
  Axes apart;
  std::optional<size_t> last = {};  // the bucket that it has begun last, while it may take more
};

size_t lane_of(const SharedSegment& segment, std::vector<Lane>& lanes) {
  const auto found = std::ranges::find_if(
      lanes, [&](const Lane& lane) { return lane.ranks == segment.ranks && lane.apart == segment.apart; });
  if (found != lanes.end()) return static_cast<size_t>(found - lanes.begin());
  lanes.push_back({segment.ranks, segment.apart});
  return lanes.size() - 1;
}

}  // namespace

void Bucket::add(size_t member, int64_t shard) {
  members_.push_back(member);
  offsets_.push_back(offsets_.back() + shard);
}

std::vector<Bucket> make_buckets(std::span<const SharedSegment> segments, int64_t limit, BucketOrder order) {
  std::vector<Bucket> buckets;
  std::vector<Lane> lanes;
  for (size_t i = 0; i < segments.size(); ++i) {
    const size_t member = order == BucketOrder::forward ? i : segments.size() - 1 - i;
    const SharedSegment& segment = segments[member];
    const Partition& partition = segment.partition;
    const size_t number = lane_of(segment, lanes);
    Lane& lane = lanes[number];
    const bool fits = lane.last && buckets[*lane.last].numel() + partition.padded() <= limit;
    const bool own = segment.alone || partition.ranks() == 1;
    if (!fits || own) buckets.emplace_back(partition.ranks(), segment.ranks, number);
    const size_t into = fits && !own ? *lane.last : buckets.size() - 1;
    buckets[into].add(member, partition.shard());
    lane.last = own ? std::nullopt : std::optional(into);
  }
  return buckets;
}

void copy_as(const Context& context, const Tensor& x, const Tensor& y) {
  if (x.dtype() == y.dtype()) return context.copy(x, y);
  context.run(Cast{.x = x, .y = y});
}

}  // namespace nought
