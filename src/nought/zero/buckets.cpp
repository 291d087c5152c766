#include "nought/zero/buckets.h"

namespace nought {

void Bucket::add(size_t unit, int64_t shard) {
  units_.push_back(unit);
  offsets_.push_back(offsets_.back() + shard);
}

std::vector<Bucket> make_buckets(std::span<const Partition> units, int64_t limit, BucketOrder order) {
  std::vector<Bucket> buckets;
  for (size_t i = 0; i < units.size(); ++i) {
    const size_t unit = order == BucketOrder::forward ? i : units.size() - 1 - i;
    const Partition& partition = units[unit];
    const bool fits = !buckets.empty() && buckets.back().numel() + partition.padded() <= limit;
    if (!fits || partition.ranks() == 1) buckets.emplace_back(partition.ranks());
    buckets.back().add(unit, partition.shard());
  }
  return buckets;
}

void copy_as(const Context& context, const Tensor& x, const Tensor& y) {
  if (x.dtype() == y.dtype()) return copy(x, y);
  context.run(Cast{.x = x, .y = y});
}

}  // namespace nought
