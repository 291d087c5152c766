// Streaming: copies whose stores go past the caches to memory, for what is not read again soon, or is read by a core
// that shares no cache with this one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nought {

/// As memcpy. A store that misses the caches first fetches the line that it overwrites, from whatever core holds it;
/// these do not. What was copied is visible to others who see a store that comes after it.
void copy_streaming(void* to, const void* from, size_t bytes);

/// Chooses how to write chunks that another core reads, by what it took before: through the caches, best where the
/// cores share one, or past them, where fetching lines back from the reader's cache takes many times as long. The way
/// that is not in use is tried now and then, since virtual machines move between cores.
class StoreChoice {
 public:
  /// Copies in the way that seems best.
  void copy(void* to, const void* from, size_t bytes);

  /// For the next long chunk.
  bool streaming() const { return (chunks_ % kProbeInterval == kProbeInterval - 1) != prefers_streaming(); }
  /// The chunk that was written as streaming() said took so long per byte.
  void took(double seconds_per_byte);

 private:
  static constexpr uint64_t kProbeInterval = 64;
  bool prefers_streaming() const { return 2 * costs_[1] < costs_[0]; }
  uint64_t chunks_ = 0;
  double costs_[2] = {};  // seconds per byte through the caches and past them, 0 before the first
};

}  // namespace nought
