#include "nought/zero/buckets.h"

namespace nought {

void Bucket::add(size_t member, int64_t shard) {
  members_.push_back(member);
  offsets_.push_back(offsets_.back() + shard);
}

std::vector<Bucket> make_buckets(std::span<const Partition> segments, int64_t limit, BucketOrder order) {
  std::vector<Bucket> buckets;
  for (size_t i = 0; i < segments.size(); ++i) {
    const size_t member = order == BucketOrder::forward ? i : segments.size() - 1 - i;
    const Partition& partition = segments[member];
    const bool fits = !buckets.empty() && buckets.back().numel() + partition.padded() <= limit;
    if (!fits || partition.ranks() == 1) buckets.emplace_back(partition.ranks());
    buckets.back().add(member, partition.shard());
  }
  return buckets;
}

void copy_as(const Context& context, const Tensor& x, const Tensor& y) {
  if (x.dtype() == y.dtype()) return context.copy(x, y);
  context.run(Cast{.x = x, .y = y});
}

}  // namespace nought
