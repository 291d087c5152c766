// How fast the kernels of CUDA are, beside what copies and products reach at best on the same device.
#pragma once

#include <cstdint>
#include <string>

#include "nought/kernels/kernels.h"

namespace nought::test {

/// A table, one operation per line: microseconds, GB/s or TFLOP/s, and the share of the ceiling. `tokens` sets the
/// sizes: 4096 keeps a GPU busy, and an emulated one takes 16.
std::string timings_of(const Context& context, int64_t tokens);

}  // namespace nought::test
