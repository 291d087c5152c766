// How products are cut along k: the sums of a chunk are added up alone, then to those of the chunks before. So the bits
// of an element depend on the chunks, and all kernels of one arithmetic take the same.
#pragma once

#include <cstdint>

#include "nought/base/math.h"

namespace nought::cpu {

/// Chunks of k but the last are multiples of it: a tile of AMX, a block of codes.
inline constexpr int64_t kChunkGrain = 32;

/// `extent` cut into the fewest intervals of at most `most`, nearly equal multiples of `grain`.
constexpr int64_t even_share(int64_t extent, int64_t most, int64_t grain) {
  return round_up(ceil_div(extent, ceil_div(extent, most)), grain);
}

/// Elements of k in all chunks but the last: nearly equal.
constexpr int64_t chunk_of(int64_t k, int64_t longest) { return even_share(k, longest, kChunkGrain); }

/// The longest chunks of products by fp32 multiply-adds. A transposed A is packed once for each block of B: wide
/// blocks, for which k is cut shorter.
constexpr int64_t longest_float_chunk(bool transpose_a, bool avx512) {
  if (transpose_a) return 192;
  return avx512 ? 320 : 256;
}
/// The longest chunks of products by dot products of bf16.
constexpr int64_t longest_dot_chunk(bool transpose_a) { return transpose_a ? 384 : 1024; }

}  // namespace nought::cpu
