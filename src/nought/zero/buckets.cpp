#include "nought/zero/buckets.h"

#include <map>

namespace nought {

void Bucket::add(size_t member, int64_t shard) {
  members_.push_back(member);
  offsets_.push_back(offsets_.back() + shard);
}

std::vector<Bucket> make_buckets(std::span<const SharedSegment> segments, int64_t limit, BucketOrder order) {
  std::vector<Bucket> buckets;
  std::map<const Communicator*, size_t> last;  // the bucket that each group has begun last
  for (size_t i = 0; i < segments.size(); ++i) {
    const size_t member = order == BucketOrder::forward ? i : segments.size() - 1 - i;
    const auto& [partition, ranks, alone] = segments[member];
    const auto found = last.find(ranks);
    const bool fits = found != last.end() && buckets[found->second].numel() + partition.padded() <= limit;
    const bool own = alone || partition.ranks() == 1;
    if (!fits || own) buckets.emplace_back(partition.ranks(), ranks);
    const size_t into = fits && !own ? found->second : buckets.size() - 1;
    buckets[into].add(member, partition.shard());
    if (own) {
      last.erase(ranks);
    } else {
      last[ranks] = into;
    }
  }
  return buckets;
}

void copy_as(const Context& context, const Tensor& x, const Tensor& y) {
  if (x.dtype() == y.dtype()) return context.copy(x, y);
  context.run(Cast{.x = x, .y = y});
}

}  // namespace nought
