// Buckets: which segments travel together in one collective, and where each lies in the buffer that they travel in.
//
// A collective of many small segments pays for its latency once (the constant-size buffers of arXiv 1910.02054, section
// 6.2). A segment that has a bucket of its own travels from where it is: nothing is copied.
#pragma once

#include <span>
#include <vector>

#include "nought/comm/communicator.h"
#include "nought/zero/partition.h"

namespace nought {

/// A segment that travels between the ranks that share it out.
struct SharedSegment {
  Partition partition;
  Communicator* ranks = nullptr;
  bool alone = false;  // it has a bucket of its own, as tiles have: with others it would take the room of them all
  Axes apart = {};     // it shares buckets with those of the same axes alone
};

/// The shards of several segments, side by side for each rank: a packed buffer is [ranks * shard()].
class Bucket {
 public:
  Bucket(int ranks, Communicator* group, size_t lane) : ranks_(ranks), group_(group), lane_(lane) {}
  void add(size_t member, int64_t shard);

  /// The ranks that share out its segments.
  Communicator& group() const { return *group_; }
  /// The number of the lane that it belongs to: of each one bucket is filled at a time.
  size_t lane() const { return lane_; }
  /// Places in the list that make_buckets() was given.
  const std::vector<size_t>& members() const { return members_; }
  bool alone() const { return members_.size() == 1; }
  int64_t shard() const { return offsets_.back(); }
  int64_t numel() const { return shard() * ranks_; }
  /// A rank's part of the packed buffer.
  Tensor part(const Tensor& packed, int rank) const { return packed.flat(rank * shard(), (rank + 1) * shard()); }
  /// In it, the shard of the i-th member.
  Tensor part(const Tensor& packed, int rank, size_t i) const {
    return packed.flat(rank * shard() + offsets_[i], rank * shard() + offsets_[i + 1]);
  }

 private:
  int ranks_;
  Communicator* group_;
  size_t lane_;
  std::vector<size_t> members_;
  std::vector<int64_t> offsets_{0};
};

enum class BucketOrder : uint8_t { forward, backward };

/// Segments of the same ranks and of the same axes `apart` make a lane. Puts those that follow one another there, first
/// to last or last to first, into one bucket while they have at most `limit` elements together, padding included. A
/// larger one has a bucket of its own. If `limit` is 0 or there is one rank, every segment has. Buckets come in the
/// order of their first members.
std::vector<Bucket> make_buckets(std::span<const SharedSegment> segments, int64_t limit, BucketOrder order);

/// Copies x to y, or converts it to y's dtype.
void copy_as(const Context& context, const Tensor& x, const Tensor& y);

}  // namespace nought
