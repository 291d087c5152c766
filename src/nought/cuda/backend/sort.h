// Sorts keys on the device: a bitonic network, whose order of comparisons depends on the number of keys alone. Keys are
// all different, so the result is one.
#pragma once

#include <bit>
#include <cstdint>

#include "nought/cuda/backend/launch.h"

namespace nought::cuda {

/// Larger than any key of sort_keys(): what fills the room up.
inline constexpr uint64_t kNoKey = ~uint64_t{0};
/// How many keys sort_keys() has room for if there are n: a power of two. Those behind n are kNoKey.
inline int64_t room_of_keys(int64_t n) {
  constexpr uint64_t kLeast = 2;
  const auto count = static_cast<uint64_t>(n);
  return static_cast<int64_t>(std::bit_ceil(count < kLeast ? kLeast : count));
}
/// Sorts `count` keys, a power of two, in ascending order.
void sort_keys(const Launch& where, uint64_t* keys, int64_t count);

}  // namespace nought::cuda
