// Sizes that the kernels of CUDA and the plan of their workspace share (workspace.h).
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "nought/base/math.h"
#include "nought/kernels/ops/attention.h"

namespace nought::cuda {

/// Rows that are summed at once, column by column.
inline constexpr int kChunkRows = 256;
/// The elements, in the type of sums, that column sums of [rows, n] work in.
inline int64_t room_of_columns(int64_t rows, int64_t n) { return ceil_div(rows, kChunkRows) * n; }

/// Elements whose squares are summed by one block of threads.
inline constexpr int64_t kSquaresBlock = 65536;

/// The most experts of a router whose choices run on the device.
inline constexpr int64_t kMostExperts = 512;

/// The largest head of keys or values that the kernels of attention take.
inline constexpr int64_t kMostHeadDim = 256;

/// What the addresses of a product's operands are multiples of; those of others are copied.
inline constexpr size_t kAlignmentOfProducts = 16;

/// How many keys sort_keys() has room for if there are n: a power of two. Those behind n are kNoKey.
inline int64_t room_of_keys(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(n, 2))));
}

/// Where a sequence lies, on the device. `tiles`: how many tiles of queries the sequences before it have.
struct SpanOnDevice {
  int64_t q_begin = 0, q_length = 0, k_begin = 0, k_length = 0, first_position = 0, tiles = 0;
};

/// Keys that the same sequences have, all of them. `tiles` as above, of keys.
struct KeySegment {
  int64_t begin = 0, end = 0, tiles = 0;
};

/// The keys of spans, cut wherever one begins or ends; stretches that no span has are left out.
std::vector<Interval> key_segments(const AttentionShape& shape);

}  // namespace nought::cuda
