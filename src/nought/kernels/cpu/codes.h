// Weights of codes on the CPU: decoding stretches of them.
#pragma once

#include <cstddef>
#include <optional>

#include "nought/base/math.h"
#include "nought/kernels/weight.h"

namespace nought::cpu {

/// to[i] [+]= element begin + i of the weight, seen flat, rounded once. `to` is f32, bf16 or f16. Of codes of Q8_0
/// begin and count are multiples of kCodeBlock.
void decode(const Weight& weight, int64_t begin, int64_t count, DType dtype, void* to, bool add = false);

/// Rows of a weight of blocks in one format.
struct BlockRows {
  const WeightFormat* format;
  const std::byte* bytes;  // of the first of the rows
  int64_t row_bytes;
};
/// Rows [begin, end) of the weight; nothing if they have several formats.
std::optional<BlockRows> rows_of_blocks(const Weight& weight, Interval rows);

}  // namespace nought::cpu
