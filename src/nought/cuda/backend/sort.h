// Sorts keys on the device: a bitonic network, whose order of comparisons depends on the number of keys alone. Keys are
// all different, so the result is one.
#pragma once

#include <cstdint>

#include "nought/cuda/backend/launch.h"
#include "nought/cuda/limits.h"

namespace nought::cuda {

/// Larger than any key of sort_keys(): what fills the room up.
inline constexpr uint64_t kNoKey = ~uint64_t{0};
/// Sorts `count` keys, a power of two, in ascending order.
void sort_keys(const Launch& where, uint64_t* keys, int64_t count);

}  // namespace nought::cuda
