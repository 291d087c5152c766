// The tiles and panels of products by fp32 multiply-adds. This file is compiled once per target.
#if defined(NOUGHT_KERNELS_CPU_GEMM_FLOAT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NOUGHT_KERNELS_CPU_GEMM_FLOAT_INL_H_
#undef NOUGHT_KERNELS_CPU_GEMM_FLOAT_INL_H_
#else
#define NOUGHT_KERNELS_CPU_GEMM_FLOAT_INL_H_
#endif

#include <hwy/cache_control.h>

#include "nought/kernels/cpu/gemm_tile.h"
#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

// A tile of C is as many sums as registers allow beside the vectors of B and one of A: multiply-adds take four cycles
// and two start in each, so at least eight must be under way, and fewer loads than multiply-adds are asked for.
#if HWY_TARGET == HWY_AVX3
inline constexpr int kTileOfFloatRows = 8, kTileVectors = 3;  // 24 of 32 registers
#else
inline constexpr int kTileOfFloatRows = 6, kTileVectors = 2;  // 12 of 16 registers
#endif
inline constexpr int64_t kFloatLanes = hn::MaxLanes(F32());
inline constexpr int64_t kFloatColumns = kTileVectors * kFloatLanes;

// --- panels of B: [k][kFloatColumns] each, zero where B has no column ---

/// Elements of a panel of `width` columns. k is rounded up to the rows that a transposition writes at a time.
inline int64_t float_panel(int64_t k, int64_t width) { return round_up(k, 4) * width; }

/// Packs `from`: [k, columns], `stride` elements from row to row.
template <class T>
void pack_float_rows(const T* from, int64_t stride, int64_t k, int64_t columns, float* to) {
  constexpr int64_t kAhead = 16;  // Rows are far apart: the hardware does not foresee them.
  constexpr int64_t kLine = 64 / sizeof(T);
  const F32 d;
  const int64_t panel = float_panel(k, kFloatColumns), whole = columns / kFloatColumns * kFloatColumns;
  for (int64_t p = 0; p < k; ++p, from += stride, to += kFloatColumns) {
    for (int64_t j = 0; j < columns; j += kLine) hwy::Prefetch(from + kAhead * stride + j);
    float* at = to;
    for (int64_t j = 0; j < whole; j += kFloatColumns, at += panel)
      for (int64_t v = 0; v < kFloatColumns; v += kFloatLanes) hn::Store(load(d, from + j + v), d, at + v);
    if (whole == columns) continue;
    widen(from + whole, columns - whole, at);
    std::fill(at + columns - whole, at + kFloatColumns, 0.0f);
  }
}

#if HWY_TARGET == HWY_SCALAR

inline void transpose_four(const float* from, int64_t /*stride*/, float* to) {
  for (int64_t p = 0; p < 4; ++p) to[p * kFloatColumns] = from[p];
}

#else

/// A vector of four elements each of rows that lie `stride` apart.
HWY_INLINE hn::Vec<F32> quads(const float* from, int64_t stride) {
  const hn::CappedTag<float, 4> d4;
#if HWY_TARGET == HWY_AVX3
  const F32 d;
  const hn::Half<F32> half;
  return hn::Combine(d, hn::Combine(half, hn::LoadU(d4, from + 3 * stride), hn::LoadU(d4, from + 2 * stride)),
                     hn::Combine(half, hn::LoadU(d4, from + stride), hn::LoadU(d4, from)));
#elif HWY_TARGET == HWY_AVX2
  return hn::Combine(F32(), hn::LoadU(d4, from + stride), hn::LoadU(d4, from));
#else
  (void)stride;
  return hn::LoadU(d4, from);
#endif
}

/// to: 4 rows of kFloatColumns, a vector in each = the transpose of kFloatLanes rows of 4.
HWY_INLINE void transpose_four(const float* from, int64_t stride, float* to) {
  const F32 d;
  hn::Vec<F32> rows[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) rows[i] = quads(from + i * stride, 4 * stride);
  transpose_blocks(rows);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) hn::Store(rows[i], d, to + i * kFloatColumns);
}

#endif

/// Packs `from`: [columns, k], the transposed operand, a stretch of rows after the other.
template <class T>
void pack_float_columns(const T* from, int64_t stride, int64_t k, int64_t columns, float* to) {
  constexpr int64_t kStretch = 64, kPadded = kStretch + 4;
  HWY_ALIGN float rows[kFloatLanes * kPadded];
  for (int64_t group = 0; group < columns; group += kFloatColumns, to += float_panel(k, kFloatColumns))
    for (int64_t v = 0; v < kFloatColumns; v += kFloatLanes)
      for (int64_t p = 0; p < k; p += kStretch) {
        const int64_t there = std::clamp<int64_t>(columns - group - v, 0, kFloatLanes);
        const int64_t count = std::min(kStretch, k - p);
        const T* at = from + (group + v) * stride + p;
        float* out = to + p * kFloatColumns + v;
        if constexpr (std::is_same_v<T, float>) {
          if (there == kFloatLanes && count == kStretch) {
            for (int64_t i = 0; i < kStretch; i += 4) transpose_four(at + i, stride, out + i * kFloatColumns);
            continue;
          }
        }
        for (int64_t i = 0; i < kFloatLanes; ++i) {
          if (i < there) widen(at + i * stride, count, rows + i * kPadded);
          if (i >= there || count % 4 != 0)
            std::fill(rows + i * kPadded + (i < there ? count : 0), rows + i * kPadded + round_up(count, 4), 0.0f);
        }
        for (int64_t i = 0; i < count; i += 4) transpose_four(rows + i, kPadded, out + i * kFloatColumns);
      }
}

// --- rows of A ---

/// Elements of the rows of A that a tile takes. A vector may reach over the last of them.
inline int64_t float_left_panel(int64_t k) { return k * kTileOfFloatRows + 8; }

/// Packs `from`: [k, rows], a transposed A: [k][kTileOfFloatRows] for each tile. Rows that a last tile lacks are
/// undefined.
template <class T>
void pack_float_left(const T* from, int64_t stride, int64_t k, int64_t rows, float* to) {
  constexpr int64_t kAhead = 32, kLine = 64 / sizeof(T), kTile = kTileOfFloatRows;
  const hn::CappedTag<float, 8> d;
  constexpr int64_t kLanes = hn::MaxLanes(d);
  const int64_t panel = float_left_panel(k);
  for (int64_t p = 0; p < k; ++p, from += stride, to += kTile) {
    for (int64_t j = 0; j < rows; j += kLine) hwy::Prefetch(from + kAhead * stride + j);
    float* at = to;
    int64_t row = 0;
    // A vector may reach over the tile: what it writes there comes again with the next element of k.
    for (; row + 8 <= rows; row += kTile, at += panel)
      for (int64_t i = 0; i < kTile; i += kLanes) hn::StoreU(load(d, from + row + i), d, at + i);
    for (; row < rows; row += kTile, at += panel)
      for (int64_t i = 0; i < std::min(kTile, rows - row); ++i) at[i] = static_cast<float>(from[row + i]);
  }
}

// --- tiles ---

/// kRows x kVectors vectors of C = `before` + A times a panel. A lies in rows (`row_step` apart), or packed in tiles.
template <int kRows, int kVectors, bool kPacked>
HWY_NOINLINE void multiply_floats_tile(int64_t k, const float* a, int64_t row_step, const float* b, const float* before,
                                       int64_t before_stride, float* c, int64_t stride) {
  const F32 d;
  hn::Vec<F32> sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(d);
  // Earlier sums are far away by now; they are needed when this tile's are done.
  if (before != nullptr)
    for (int r = 0; r < kRows; ++r)
      for (int v = 0; v < kVectors; ++v) hwy::Prefetch(before + r * before_stride + v * kFloatLanes);
#pragma GCC unroll 4
  for (int64_t p = 0; p < k; ++p) {
    hn::Vec<F32> columns[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) columns[v] = hn::Load(d, b + p * kFloatColumns + v * kFloatLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const auto left = hn::Set(d, kPacked ? a[p * kTileOfFloatRows + r] : a[r * row_step + p]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(left, columns[v], sums[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      auto sum = sums[r][v];
      if (before != nullptr) sum = hn::Add(hn::LoadU(d, before + r * before_stride + v * kFloatLanes), sum);
      hn::StoreU(sum, d, c + r * stride + v * kFloatLanes);
    }
}

/// What is left to do with sums: [rows][kFloatColumns] that are not C as they are.
template <class T>
void finish_floats(const TileOfSums<T>& tile, int64_t rows, const float* sums) {
  const F32 d;
  for (int64_t row = 0; row < rows; ++row, sums += kFloatColumns)
    sweep(d, 0, tile.columns, [&](int64_t j, auto access) HWY_ATTR {
      auto sum = access.load(d, sums + j);
      if (tile.before != nullptr) sum = hn::Add(access.load(d, tile.before + row * tile.before_stride + j), sum);
      if (tile.bias != nullptr) sum = hn::Add(sum, access.load(d, tile.bias + j));
      if (tile.sums != nullptr) return access.store(d, sum, tile.sums + row * tile.stride + j);
      T* out = tile.rounded + row * tile.stride + j;
      if (tile.accumulate) sum = hn::Add(access.load(d, out), sum);
      access.store(d, sum, out);
    });
}

/// Rows of A over a chunk of k: where they lie, or widened, or packed in tiles if A is transposed.
template <class T>
class FloatLeft {
 public:
  static int64_t left_elements(int64_t rows, int64_t k, bool transposed) {
    if (transposed) return ceil_div(rows, kTileOfFloatRows) * float_left_panel(k);
    return std::is_same_v<T, float> ? 0 : rows * (k + kSkew);
  }
  FloatLeft(const T* a, int64_t stride, bool transposed, int64_t rows, int64_t k, float* memory)
      : k_(k), packed_(transposed) {
    if (transposed) {
      pack_float_left(a, stride, k, rows, memory);
      a_ = memory;
    } else if constexpr (std::is_same_v<T, float>) {
      a_ = a, stride_ = stride;
    } else {
      for (int64_t row = 0; row < rows; ++row) widen(a + row * stride, k, memory + row * (k + kSkew));
      a_ = memory, stride_ = k + kSkew;
    }
  }

  template <class Session>
  void multiply(const Session& /*session*/, int64_t row, int64_t rows, const float* panel,
                const TileOfSums<T>& tile) const {
    const float* a = a_ + (packed_ ? row / kTileOfFloatRows * float_left_panel(k_) : row * stride_);
    const int64_t vectors = ceil_div(tile.columns, kFloatLanes);
    if (tile.columns == vectors * kFloatLanes && tile.sums != nullptr && tile.bias == nullptr)
      return run(rows, vectors, a, panel, tile.before, tile.before_stride, tile.sums, tile.stride);
    HWY_ALIGN float sums[kTileOfFloatRows * kFloatColumns];
    run(rows, vectors, a, panel, nullptr, 0, sums, kFloatColumns);
    finish_floats(tile, rows, sums);
  }

 private:
  static constexpr int64_t kSkew = 16;  // so that rows of a power of two do not share the sets of a cache

  void run(int64_t rows, int64_t vectors, const float* a, const float* panel, const float* before,
           int64_t before_stride, float* c, int64_t stride) const {
    with_count<kTileVectors>(vectors, [&](auto v) HWY_ATTR {
      with_count<kTileOfFloatRows>(rows, [&](auto r) HWY_ATTR {
        const auto multiply = packed_ ? multiply_floats_tile<decltype(r)::value, decltype(v)::value, true>
                                      : multiply_floats_tile<decltype(r)::value, decltype(v)::value, false>;
        multiply(k_, a, stride_, panel, before, before_stride, c, stride);
      });
    });
  }

  const float* a_ = nullptr;
  int64_t stride_ = 0, k_;
  bool packed_;
};

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
