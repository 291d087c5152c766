#include "nought/kernels/cpu/gemm_bf16.h"

#include <algorithm>
#include <cstring>

#include "nought/base/error.h"
#include "nought/kernels/cpu/gemm_bf16_pack.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/scratch.h"

#if defined(__x86_64__)
#include <immintrin.h>
#if !defined(__clang__)
// GCC 12 warns about values that its own intrinsics leave undefined on purpose (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#endif

namespace nought::cpu {

#if defined(__x86_64__)

namespace {

#define NOUGHT_AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

// A tile of C is 8 rows of 3 vectors: 24 sums, so that a dot product never waits for the one before, and 11 loads for
// 24 dot products. A panel of A stays in the first cache while panels of B stream past it from the second.
constexpr int64_t kRows = 8, kVectors = 3, kColumns = 16 * kVectors;
constexpr int64_t kBlockRows = 512;  // of C: one thread's task
constexpr int64_t kPackedRows = 32;  // of a transposed A: a cache line of each stored row

/// What a thread packs of B at a time: it fits the second cache.
struct BlockShape {
  int64_t columns, longest_chunk;
  // A transposed A is packed once for each block of B: wide blocks, for which k is cut shorter.
  static BlockShape of(bool transpose_a) {
    return transpose_a ? BlockShape{8 * kColumns, 512} : BlockShape{4 * kColumns, 1024};
  }
  /// Elements of k in all chunks but the last: nearly equal, even.
  int64_t chunk(int64_t k) const { return round_up(ceil_div(k, ceil_div(k, longest_chunk)), 2); }
};

/// Where the tile's sums come from and go to.
struct Tile {
  const float* before = nullptr;  // sums of earlier chunks, or what is added to; null: nothing
  float* sums = nullptr;          // f32; null: the tile is finished in `rounded`
  bf16_t* rounded = nullptr;
  const bf16_t* bias = nullptr;
  int64_t before_stride = 0, stride = 0;
  int64_t columns = kColumns;
  bool accumulate = false;  // adds to `rounded`
};

constexpr __mmask16 mask_of(int64_t columns, int64_t vector) {
  return static_cast<__mmask16>((1u << std::clamp<int64_t>(columns - 16 * vector, 0, 16)) - 1);
}

NOUGHT_AVX512_BF16 inline __m512 widen(__m256i values) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(values), 16));
}

NOUGHT_AVX512_BF16 inline void finish(const Tile& tile, int64_t row, int64_t vector, __m512 sum) {
  const __mmask16 mask = mask_of(tile.columns, vector);
  if (tile.before != nullptr)
    sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, tile.before + row * tile.before_stride + 16 * vector), sum);
  if (tile.bias != nullptr) sum = _mm512_add_ps(sum, widen(_mm256_maskz_loadu_epi16(mask, tile.bias + 16 * vector)));
  if (tile.sums != nullptr) return _mm512_mask_storeu_ps(tile.sums + row * tile.stride + 16 * vector, mask, sum);
  bf16_t* out = tile.rounded + row * tile.stride + 16 * vector;
  if (tile.accumulate) sum = _mm512_add_ps(widen(_mm256_maskz_loadu_epi16(mask, out)), sum);
  const __m256bh rounded = _mm512_cvtneps_pbh(sum);
  __m256i bits;
  std::memcpy(&bits, &rounded, sizeof bits);
  _mm256_mask_storeu_epi16(out, mask, bits);
}

NOUGHT_AVX512_BF16 inline __m512 dot(__m512 sum, __m512i a, __m512i b) {
  __m512bh x, y;
  std::memcpy(&x, &a, sizeof x);
  std::memcpy(&y, &b, sizeof y);
  return _mm512_dpbf16_ps(sum, x, y);
}

inline int32_t word_at(const bf16_t* from) {
  int32_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

/// `rows` x kColumns of C over one chunk of k. a: rows of `row_step` elements from one to the next, pairs of
/// `pair_step`.
template <int rows, int64_t pair_step>
NOUGHT_AVX512_BF16 void multiply_tile(int64_t k, const bf16_t* a, int64_t row_step, const bf16_t* b, const Tile& tile) {
  __m512 sums[rows][kVectors];
#pragma GCC unroll 8
  for (auto& row : sums)
#pragma GCC unroll 3
    for (__m512& sum : row) sum = _mm512_setzero_ps();
  const auto add_pair = [&](auto word_of) NOUGHT_AVX512_BF16 {
    __m512i columns[kVectors];
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) columns[v] = _mm512_loadu_si512(b + 32 * v);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const __m512i word = _mm512_set1_epi32(word_of(a + r * row_step));
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) sums[r][v] = dot(sums[r][v], word, columns[v]);
    }
  };
  for (int64_t pair = 0; pair < k / 2; ++pair, a += pair_step, b += 2 * kColumns) add_pair(word_at);
  if (k % 2 != 0) {
    // Behind the last element of a row there may be anything, or no memory; a packed panel has a zero there.
    add_pair([](const bf16_t* last) { return static_cast<int32_t>(last->bits); });
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) finish(tile, r, v, sums[r][v]);
}

template <int64_t pair_step>
void multiply_tile(int64_t rows, int64_t k, const bf16_t* a, int64_t row_step, const bf16_t* b, const Tile& tile) {
  switch (rows) {
    case 1:
      return multiply_tile<1, pair_step>(k, a, row_step, b, tile);
    case 2:
      return multiply_tile<2, pair_step>(k, a, row_step, b, tile);
    case 3:
      return multiply_tile<3, pair_step>(k, a, row_step, b, tile);
    case 4:
      return multiply_tile<4, pair_step>(k, a, row_step, b, tile);
    case 5:
      return multiply_tile<5, pair_step>(k, a, row_step, b, tile);
    case 6:
      return multiply_tile<6, pair_step>(k, a, row_step, b, tile);
    case 7:
      return multiply_tile<7, pair_step>(k, a, row_step, b, tile);
    default:
      return multiply_tile<8, pair_step>(k, a, row_step, b, tile);
  }
}

/// One block of C by one thread, chunk after chunk of k.
class Block {
 public:
  Block(const Bf16Product& product, Interval rows, Interval columns)
      : product_(product),
        rows_(rows),
        columns_(columns),
        chunk_(BlockShape::of(product.transpose_a).chunk(product.sizes.k)),
        b_(packed_panel(chunk_, round_up(columns.size(), kColumns)) * size_of(DType::bf16)),
        a_(product.transpose_a ? packed_panel(chunk_, kPackedRows) * size_of(DType::bf16) : 0),
        sums_(keeps_sums() ? rows.size() * columns.size() * size_of(DType::f32) : 0) {}

  void run() {
    for (int64_t begin = 0; begin < product_.sizes.k; begin += chunk_) {
      const Interval chunk{begin, std::min(product_.sizes.k, begin + chunk_)};
      pack_b(chunk);
      const int64_t step = product_.transpose_a ? kPackedRows : kRows;
      for (int64_t row = rows_.begin; row < rows_.end; row += step)
        multiply_rows(chunk, {row, std::min(rows_.end, row + step)});
    }
  }

 private:
  /// A rounded C cannot hold the sums between chunks.
  bool keeps_sums() const { return product_.output != DType::f32 && product_.sizes.k > chunk_; }

  void pack_b(Interval chunk) const {
    const int64_t ldb = product_.ldb;
    if (product_.transpose_b) {
      pack_columns(product_.b + columns_.begin * ldb + chunk.begin, ldb, chunk.size(), columns_.size(), kColumns,
                   b_.data<bf16_t>());
    } else {
      pack_rows(product_.b + chunk.begin * ldb + columns_.begin, ldb, chunk.size(), columns_.size(), kColumns,
                b_.data<bf16_t>());
    }
  }
  bf16_t* panel(Interval chunk, int64_t column) const {
    return b_.data<bf16_t>() + packed_panel(chunk.size(), column - columns_.begin);
  }

  void multiply_rows(Interval chunk, Interval rows) const {
    if (product_.transpose_a)
      pack_rows(product_.a + chunk.begin * product_.lda + rows.begin, product_.lda, chunk.size(), rows.size(), kRows,
                a_.data<bf16_t>());
    for (int64_t row = rows.begin; row < rows.end; row += kRows) {
      const int64_t count = std::min(kRows, rows.end - row);
      for (int64_t column = columns_.begin; column < columns_.end; column += kColumns) {
        const Tile tile = tile_at(row, column, chunk);
        if (product_.transpose_a) {
          const bf16_t* a = a_.data<bf16_t>() + packed_panel(chunk.size(), row - rows.begin);
          multiply_tile<2 * kRows>(count, chunk.size(), a, 2, panel(chunk, column), tile);
        } else {
          const bf16_t* a = product_.a + row * product_.lda + chunk.begin;
          multiply_tile<2>(count, chunk.size(), a, product_.lda, panel(chunk, column), tile);
        }
      }
    }
  }

  Tile tile_at(int64_t row, int64_t column, Interval chunk) const {
    const bool first = chunk.begin == 0, last = chunk.end == product_.sizes.k;
    const int64_t at = row * product_.ldc + column;
    Tile tile{.stride = product_.ldc, .columns = std::min(kColumns, columns_.end - column)};
    if (last && product_.bias != nullptr) tile.bias = product_.bias + column;
    if (product_.output == DType::f32) {
      tile.sums = static_cast<float*>(product_.c) + at;
      if (!first || product_.accumulate) tile.before = tile.sums, tile.before_stride = product_.ldc;
      return tile;
    }
    float* kept =
        keeps_sums() ? sums_.data<float>() + (row - rows_.begin) * columns_.size() + column - columns_.begin : nullptr;
    if (!first) tile.before = kept, tile.before_stride = columns_.size();
    if (!last) {
      tile.sums = kept, tile.stride = columns_.size();
    } else {
      tile.rounded = static_cast<bf16_t*>(product_.c) + at;
      tile.accumulate = product_.accumulate;
    }
    return tile;
  }

  const Bf16Product& product_;
  Interval rows_, columns_;
  int64_t chunk_;
  Scratch b_, a_, sums_;
};

}  // namespace

bool has_bf16_gemm() {
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bf16");
  return has;
}

void multiply(const Bf16Product& product) {
  const auto [m, n, k] = product.sizes;
  const int64_t width = BlockShape::of(product.transpose_a).columns;
  const int64_t across = ceil_div(n, width), tasks = ceil_div(m, kBlockRows) * across;
  const auto run_task = [&product, width, across](int64_t task) {
    const int64_t row = task / across * kBlockRows, column = task % across * width;
    Block(product, {row, std::min(product.sizes.m, row + kBlockRows)},
          {column, std::min(product.sizes.n, column + width)})
        .run();
  };
  // A thread that falls behind takes fewer blocks; a block's bits are the same wherever it runs.
#pragma omp parallel for schedule(dynamic) if (tasks > 1 && m * n * k >= kParallelWork * 64)
  for (int64_t task = 0; task < tasks; ++task) run_task(task);
}

#else

bool has_bf16_gemm() { return false; }
void multiply(const Bf16Product&) { fail("this machine has no AVX512-BF16"); }

#endif

}  // namespace nought::cpu
