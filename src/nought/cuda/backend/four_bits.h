// What codes of 4 bits stand for, as it travels with a launch.
#pragma once

#include <cstdint>

#include "nought/cuda/backend/kernel.h"
#include "nought/kernels/four_bits.h"

namespace nought::cuda {

struct FourBitTable {
  float at[16];

  explicit FourBitTable(CodeKind kind) {
    for (size_t i = 0; i < 16; ++i) at[i] = four_bit_values(kind)[i];
  }
  /// Element i of a weight, seen flat.
  __device__ float value(const uint8_t* codes, const float* scales, int64_t i) const {
    const int both = codes[i / 2];
    return at[i % 2 == 0 ? both >> 4 : both & 15] * scales[i / kFourBitBlock];
  }
};

}  // namespace nought::cuda
