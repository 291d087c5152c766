// Products of few rows by blocks of GGUF: the codes of some columns are transposed as bytes, and what they stand for is
// multiplied in registers. Included for each instruction set, by few_rows.cpp.
//
// An element of C adds the products along k one by one, as in a large product of the decoded weight: the same bits.
#if defined(NOUGHT_KERNELS_CPU_FEW_ROWS_BLOCKS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NOUGHT_KERNELS_CPU_FEW_ROWS_BLOCKS_INL_H
#undef NOUGHT_KERNELS_CPU_FEW_ROWS_BLOCKS_INL_H
#else
#define NOUGHT_KERNELS_CPU_FEW_ROWS_BLOCKS_INL_H
#endif

#include "nought/kernels/cpu/blocks-inl.h"
#include "nought/kernels/cpu/words-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

inline constexpr int64_t kBlockColumns = 16;  // columns whose codes are transposed at a time

/// One block of each of some columns: the codes row by row, scales and minimums by sub-blocks.
struct ColumnBlocks {
  alignas(64) int8_t codes[kBlockColumns][kMostOfBlock];
  alignas(64) float scales[SubBlocks::kMost][kBlockColumns];
  alignas(64) float mins[SubBlocks::kMost][kBlockColumns];
  int64_t sub = 0;  // elements of a sub-block
  bool has_mins = false;
};

/// f16 at an offset of each column's block, widened.
HWY_INLINE void halves_at(const std::byte* block, int64_t row_bytes, int64_t offset, float* to) {
  f16_t halves[kBlockColumns];
  for (int64_t j = 0; j < kBlockColumns; ++j)
    std::memcpy(&halves[j].bits, block + j * row_bytes + offset, sizeof(halves[j].bits));
  const F32 d;
  for (int64_t j = 0; j < kBlockColumns; j += hn::MaxLanes(F32())) store(d, load(d, halves + j), to + j);
}

/// block: that of the first column; a column's is row_bytes behind the one before.
HWY_INLINE void unpack_columns(GgufType type, const std::byte* block, int64_t row_bytes, ColumnBlocks& to) {
  constexpr int64_t kAhead = 512;  // bytes
  for (int64_t j = 0; j < kBlockColumns; ++j) {
    hwy::Prefetch(block + j * row_bytes + kAhead);
    unpack_codes(type, block + j * row_bytes, to.codes[j]);
  }
  const bool one =
      type == GgufType::q4_0 || type == GgufType::q5_0 || type == GgufType::q8_0 || type == GgufType::iq4_nl;
  const bool two = type == GgufType::q4_1 || type == GgufType::q5_1;
  if (one || two) {
    to.sub = 32, to.has_mins = two;
    halves_at(block, row_bytes, 0, to.scales[0]);
    if (!two) return;
    halves_at(block, row_bytes, 2, to.mins[0]);
    for (float& min : to.mins[0]) min = -min;
    return;
  }
  for (int64_t j = 0; j < kBlockColumns; ++j) {
    SubBlocks sub;
    read_sub_blocks(type, block + j * row_bytes, sub);
    to.sub = sub.size, to.has_mins = sub.has_mins;
    for (size_t i = 0; i < SubBlocks::kMost; ++i) to.scales[i][j] = sub.scales[i], to.mins[i][j] = sub.mins[i];
  }
}

/// to: [16][16] = sixteen codes of each column, by their place.
HWY_INLINE void transpose_codes(const ColumnBlocks& blocks, int64_t first, int8_t* to) {
  const Codes d;
  hn::Vec<Codes> rows[16], mixed[16];
#pragma GCC unroll 16
  for (int64_t j = 0; j < 16; ++j) rows[j] = hn::LoadU(d, blocks.codes[j] + first);
  const auto mix = [&](const hn::Vec<Codes>* from, hn::Vec<Codes>* into) HWY_ATTR {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      into[2 * i] = hn::InterleaveLower(d, from[i], from[i + 8]);
      into[2 * i + 1] = hn::InterleaveUpper(d, from[i], from[i + 8]);
    }
  };
  mix(rows, mixed), mix(mixed, rows), mix(rows, mixed), mix(mixed, rows);
#pragma GCC unroll 16
  for (int64_t j = 0; j < 16; ++j) hn::StoreU(rows[j], d, to + 16 * j);
}

/// sums: [kRows, width] += factors of rows times elements [begin, end) of the columns' blocks. x: the factors of the
/// first of these elements.
template <class Words, int kRows, bool kMins>
HWY_INLINE void add_unpacked(const ColumnBlocks& blocks, Interval elements, const float* x, int64_t stride, float* sums,
                             int64_t width) {
  const F32 d;
  constexpr int64_t kLanes = hn::MaxLanes(F32()), kVectors = kBlockColumns / kLanes;
  FloatVector totals[kRows][kVectors];
  for (int r = 0; r < kRows; ++r)
    for (int64_t v = 0; v < kVectors; ++v) totals[r][v] = hn::LoadU(d, sums + r * width + v * kLanes);
  alignas(64) int8_t codes[16 * kBlockColumns];
  for (int64_t first = elements.begin; first < elements.end; first += 16) {
    transpose_codes(blocks, first, codes);
    const int64_t sub = first / blocks.sub;
    FloatVector scales[kVectors], mins[kVectors];
    for (int64_t v = 0; v < kVectors; ++v) {
      scales[v] = hn::Load(d, blocks.scales[sub] + v * kLanes);
      mins[v] = kMins ? hn::Load(d, blocks.mins[sub] + v * kLanes) : hn::Zero(d);
    }
    for (int64_t p = 0; p < 16; ++p, ++x)
#pragma GCC unroll 2
      for (int64_t v = 0; v < kVectors; ++v) {
        auto value = hn::Mul(load(d, codes + p * kBlockColumns + v * kLanes), scales[v]);
        if (kMins) value = hn::Sub(value, mins[v]);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) totals[r][v] = Words::add(totals[r][v], x + r * stride, value);
      }
  }
  for (int r = 0; r < kRows; ++r)
    for (int64_t v = 0; v < kVectors; ++v) hn::StoreU(totals[r][v], d, sums + r * width + v * kLanes);
}

/// sums: [kRows, width] += factors of rows times elements `along` of sixteen rows of blocks. factors: of the first of
/// these elements, a multiple of 16, as their number is.
template <class Words, int kRows>
void add_block_columns(const WeightFormat& format, const std::byte* rows, int64_t row_bytes, Interval along,
                       const float* factors, int64_t stride, float* sums, int64_t width) {
  ColumnBlocks blocks;
  for (int64_t at = along.begin; at < along.end;) {
    const int64_t block = at / format.block, first = block * format.block;
    const Interval part{at - first, std::min(along.end, first + format.block) - first};
    unpack_columns(*format.gguf, rows + block * format.block_bytes, row_bytes, blocks);
    const float* x = factors + at - along.begin;
    if (blocks.has_mins) {
      add_unpacked<Words, kRows, true>(blocks, part, x, stride, sums, width);
    } else {
      add_unpacked<Words, kRows, false>(blocks, part, x, stride, sums, width);
    }
    at = first + part.end;
  }
}

#endif

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
