// Copies whose stores bypass the caches (streaming stores): for data that is not read again soon, or that a core reads
// which shares no cache with this one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nought {

/// As memcpy. An ordinary store that misses the caches first fetches the cache line that it overwrites, perhaps from
/// another core; a streaming store does not. A thread that sees a later store of this thread also sees the copied
/// bytes.
void copy_streaming(void* to, const void* from, size_t bytes);

/// Chooses how to write chunks that another core reads, by the time that earlier chunks took. Stores through the caches
/// are best where the two cores share a cache. Elsewhere each store fetches its line back from the reader's cache, and
/// streaming stores are several times as fast. The way that is not in use is tried now and then, because virtual
/// machines move between cores.
class StoreChoice {
 public:
  /// Copies in the way that is fastest so far, and measures it.
  void copy(void* to, const void* from, size_t bytes);

  /// True if the next long chunk is written with streaming stores.
  bool streaming() const { return (chunks_ % kProbeInterval == kProbeInterval - 1) != prefers_streaming(); }
  /// Notes how long the chunk took that was written as streaming() said.
  void took(double seconds_per_byte);

 private:
  static constexpr uint64_t kProbeInterval = 64;
  bool prefers_streaming() const { return 2 * costs_[1] < costs_[0]; }
  uint64_t chunks_ = 0;
  double costs_[2] = {};  // seconds per byte through the caches and past them; 0: not measured yet
};

}  // namespace nought
