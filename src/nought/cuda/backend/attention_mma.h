// What the kernels of attention on tensor cores are made of: tiles of shared memory, and products of a warp.
//
// Heads are padded with zeros to one of a few sizes, so that every loop over their elements is unrolled. A warp has 16
// rows of a product. In its registers, lane l has rows l / 4 and l / 4 + 8, and of each eight columns 2 (l % 4) and the
// next. On sm_90a the four warps of a block multiply together where sizes allow it, with the same registers.
#pragma once

#include <initializer_list>

#include "nought/cuda/backend/attention_tiles.h"

namespace nought::cuda {

/// Eight elements of 16 bits.
using Row8 = Pack<uint16_t, 8>;

/// Every block has so many.
inline constexpr int kMmaWarps = 4, kMmaThreads = kMmaWarps * kWarpSize;
inline constexpr int kWarpRows = 16;

// wgmma is an instruction of sm_90a alone.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define NOUGHT_HAS_WGMMA
#endif

#ifdef __CUDACC__
template <bool kTransposed, class Row>
__device__ inline void load_matrices(uint32_t (&r)[4], const Row* tile, int row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(tile + row));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  }
}

/// d += a b: [16, 16] by [16, 8].
template <class T>
__device__ inline void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (std::is_same_v<T, bf16_t>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}

/// Begins to copy an element of 4 or 16 bytes to tile[at], or zeros where it does not exist. Its thread waits for it.
template <class Row>
__device__ inline void copy_async(Row* tile, int at, const void* from, bool exists) {
  static_assert(sizeof(Row) == 4 || sizeof(Row) == 16);
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(tile + at));
  const int bytes = exists ? static_cast<int>(sizeof(Row)) : 0;
  if constexpr (sizeof(Row) == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
  }
}
/// Ends a group of copies.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until all groups of this thread but the last kLeft have come. Others see them behind a barrier.
template <int kLeft>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
#ifdef NOUGHT_HAS_WGMMA
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // what reads shared memory by descriptors sees it
#endif
}
#else
using emulation::commit_copies;
using emulation::copy_async;
using emulation::load_matrices;
using emulation::mma;
using emulation::wait_for_copies;
#endif

/// Two values as the elements of a register, the first in its lower half.
template <class T>
__device__ inline uint32_t packed(float low, float high) {
#ifdef __CUDA_ARCH__
  uint32_t both;
  if constexpr (std::is_same_v<T, bf16_t>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  }
  return both;
#else
  return uint32_t{T(low).bits} | uint32_t{T(high).bits} << 16;
#endif
}

/// A tile of kRows rows of kDim elements in shared memory, and where it begins: at 1024 bytes. Blocks of 64
/// elements lie one behind the other. In each, a row has 128 bytes, and its packs of eight elements change places by
/// the row's number: eight rows of a pack lie in different banks. So wgmma reads it, too (its "128-byte swizzle").
template <int kDim, int kRows>
struct MmaTile {
  static constexpr int kInRow = kDim < 64 ? kDim / 8 : 8;  // packs
  static constexpr int kSize = kDim / 8 * kRows;
  int at;
  __host__ __device__ constexpr int index(int row, int pack) const {
    const int turn = row / (8 / kInRow) % kInRow;
    return at + pack / kInRow * kInRow * kRows + row * kInRow + (pack % kInRow ^ turn);
  }
  /// index(row + rows, pack + packs) from that of row and pack, for pack 0 or 1, rows of eights and an even number of
  /// packs: so a lane keeps one number for all that it loads of a tile.
  __host__ __device__ static constexpr int moved(int index, int rows, int packs) {
    return (index ^ packs % kInRow) + packs / kInRow * kInRow * kRows + rows * kInRow;
  }
};

/// Begins to copy `rows` rows of `dim` elements, and zeros up to the rows and elements of the tile. `packs`: each
/// begins at 16 bytes. kCommon: so it is, and `dim` is a multiple of 8.
template <class T, bool kCommon, int kDim, int kRows, class Tile>
__device__ inline void fetch(const Tile& tile, MmaTile<kDim, kRows> to, const T* from, int64_t stride, int rows,
                             int dim, bool packs) {
  constexpr int kPacks = kDim / 8, kAtOnce = kMmaThreads / kPacks;
  static_assert(kMmaThreads % kPacks == 0 && kRows % kAtOnce == 0);
  const int pack = static_cast<int>(threadIdx.x) % kPacks, i = pack * 8;
  const int begin = static_cast<int>(threadIdx.x) / kPacks;
  const T* source = from + begin * stride + i;
  const bool copies = kCommon || (packs && (i + 8 <= dim || i >= dim));
  NOUGHT_UNROLL
  for (int r = begin; r < begin + kRows; r += kAtOnce, source += kAtOnce * stride) {
    if (copies) {
      copy_async(tile, to.index(r, pack), source, r < rows && i < dim);
      continue;
    }
    Pack<T, 8> values{};
    if (r < rows)
      for (int k = 0; k < 8; ++k)
        if (i + k < dim) values.values[k] = source[k];
    tile[to.index(r, pack)] = std::bit_cast<Row8>(values);
  }
}

/// True if the four warps of a block multiply together, 64 rows by 64 columns: by wgmma.
template <int kDim, int kColumns>
constexpr bool by_warpgroup() {
#ifdef NOUGHT_HAS_WGMMA
  return (kDim == 64 || kDim == 128) && kColumns % 64 == 0;
#else
  return false;
#endif
}

/// Blocks of a kernel on a multiprocessor: kMost if warps multiply together, else two, which leaves all registers.
template <bool kCommon, int kDim, int kColumns, int kMost>
constexpr int blocks_beside() {
  return kCommon && by_warpgroup<kDim, kColumns>() ? kMost : kDim > 128 ? 1 : 2;
}

#ifdef NOUGHT_HAS_WGMMA
/// Where a factor lies in a tile, from a pack of a row on that is a multiple of 8: its rows by eights.
__device__ inline uint64_t rows_at(const Row8* first) {
  constexpr uint64_t kSwizzled = uint64_t{1} << 62, kEight = 8 * 8, kUnused = 1;
  const auto address = static_cast<uint64_t>(__cvta_generic_to_shared(first));
  return kSwizzled | kEight << 32 | kUnused << 16 | (address & 0x3FFFF) >> 4;
}
#define NOUGHT_SUMS(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define NOUGHT_WGMMA(type, operands, options, ...)                                                                 \
  asm volatile("{\n.reg .pred p;\nsetp.eq.u32 p, 1, 1;\nwgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type \
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
               "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, " operands ", p, 1, 1, " options ";\n}"    \
               : NOUGHT_SUMS(0), NOUGHT_SUMS(1), NOUGHT_SUMS(2), NOUGHT_SUMS(3), NOUGHT_SUMS(4), NOUGHT_SUMS(5),   \
                 NOUGHT_SUMS(6), NOUGHT_SUMS(7)                                                                    \
               : __VA_ARGS__)
/// d += a b': both lie in shared memory, by rows.
template <class T>
__device__ inline void wgmma(float (*d)[4], uint64_t a, uint64_t b) {
  if constexpr (std::is_same_v<T, bf16_t>) {
    NOUGHT_WGMMA("bf16", "%32, %33", "0, 0", "l"(a), "l"(b));
  } else {
    NOUGHT_WGMMA("f16", "%32, %33", "0, 0", "l"(a), "l"(b));
  }
}
/// d += a b: a in registers, as mma() has it; b by rows.
template <class T>
__device__ inline void wgmma(float (*d)[4], const uint32_t (&a)[4], uint64_t b) {
  if constexpr (std::is_same_v<T, bf16_t>) {
    NOUGHT_WGMMA("bf16", "{%32, %33, %34, %35}, %36", "1", "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  } else {
    NOUGHT_WGMMA("f16", "{%32, %33, %34, %35}, %36", "1", "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  }
}
#undef NOUGHT_WGMMA
#undef NOUGHT_SUMS
#endif

/// Before and behind products of a warpgroup: registers are theirs in between. All four warps come by.
template <bool kByWarpgroup>
__device__ inline void begin_products() {
#ifdef NOUGHT_HAS_WGMMA
  if constexpr (kByWarpgroup) asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
template <bool kByWarpgroup>
__device__ inline void end_products() {
#ifdef NOUGHT_HAS_WGMMA
  if constexpr (kByWarpgroup)
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
}

/// sums[n] += a b' for the warp's 16 rows of a, from `first` on, and all rows of b, 8 kTiles.
template <class T, int kTiles, int kDim, int kRows, class Tile>
__device__ inline void add_products(float (&sums)[kTiles][4], const Tile& tile, MmaTile<kDim, kRows> a, int first,
                                    MmaTile<kDim, 8 * kTiles> b) {
  static_assert(kTiles % 2 == 0);
  if constexpr (by_warpgroup<kDim, 8 * kTiles>()) {
#ifdef NOUGHT_HAS_WGMMA
    NOUGHT_UNROLL
    for (int step = 0; step < kDim / 16; ++step) {
      NOUGHT_UNROLL
      for (int n = 0; n < kTiles; n += 8)
        wgmma<T>(&sums[n], rows_at(tile + a.index(0, 2 * step)), rows_at(tile + b.index(8 * n, 2 * step)));
    }
#endif
  } else {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize, half = lane / 8 % 2, quarter = lane / 16;
    const int of_a = a.index(first + lane % 8 + 8 * half, quarter), of_b = b.index(lane % 8 + 8 * quarter, half);
    NOUGHT_UNROLL
    for (int step = 0; step < kDim / 16; ++step) {
      uint32_t left[4];
      load_matrices<false, Row8>(left, tile, a.moved(of_a, 0, 2 * step));
      NOUGHT_UNROLL
      for (int n = 0; n < kTiles; n += 2) {
        uint32_t right[4];
        load_matrices<false, Row8>(right, tile, b.moved(of_b, 8 * n, 2 * step));
        mma<T>(sums[n], left, {right[0], right[1]});
        mma<T>(sums[n + 1], left, {right[2], right[3]});
      }
    }
  }
}

/// sums += weights b: all rows of b, 8 kTiles, of which the warp takes 8 kColumns columns from `first` on.
template <class T, int kColumns, int kTiles, int kDim, class Tile>
__device__ inline void add_weighted(float (&sums)[kColumns][4], const float (&weights)[kTiles][4], const Tile& tile,
                                    MmaTile<kDim, 8 * kTiles> b, int first) {
  static_assert(kTiles % 2 == 0 && kColumns % 2 == 0);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, half = lane / 8 % 2, quarter = lane / 16;
  // Other warps' columns begin behind whole blocks of 64 elements.
  const int of_b = b.index(lane % 8 + 8 * half, quarter) + first / 8 * 8 * kTiles;
  NOUGHT_UNROLL
  for (int k = 0; k < kTiles; k += 2) {
    const float(&low)[4] = weights[k], (&high)[4] = weights[k + 1];
    const uint32_t left[4] = {packed<T>(low[0], low[1]), packed<T>(low[2], low[3]), packed<T>(high[0], high[1]),
                              packed<T>(high[2], high[3])};
    if constexpr (by_warpgroup<kDim, 8 * kTiles>()) {
#ifdef NOUGHT_HAS_WGMMA
      NOUGHT_UNROLL
      for (int n = 0; n < kColumns; n += 8) wgmma<T>(&sums[n], left, rows_at(tile + b.index(8 * k, n)));
#endif
    } else {
      NOUGHT_UNROLL
      for (int n = 0; n < kColumns; n += 2) {
        uint32_t right[4];
        load_matrices<true, Row8>(right, tile, b.moved(of_b, 8 * k, n));
        mma<T>(sums[n], left, {right[0], right[1]});
        mma<T>(sums[n + 1], left, {right[2], right[3]});
      }
    }
  }
}

/// Calls f(n, i, column) for what a lane has of a product: sums[n][i] is of that column, and of row lane / 4 + i / 2 *
/// 8 of the warp.
template <int kTiles, class F>
__device__ inline void for_each_element(const F& f) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  NOUGHT_UNROLL
  for (int n = 0; n < kTiles; ++n) {
    NOUGHT_UNROLL
    for (int i = 0; i < 4; ++i) f(n, i, 8 * n + lane % 4 * 2 + i % 2);
  }
}

/// Calls f(half, row) for the two rows that a lane has a part of.
template <class F>
__device__ inline void for_each_row(const F& f) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  NOUGHT_UNROLL
  for (int half = 0; half < 2; ++half) f(half, lane / 4 + 8 * half);
}

/// Over the four lanes that share a row.
__device__ inline float quad_sum(float value) {
  value += __shfl_xor_sync(kAllLanes, value, 1);
  return value + __shfl_xor_sync(kAllLanes, value, 2);
}
__device__ inline float quad_largest(float value) {
  for (int lanes = 1; lanes < 4; lanes *= 2) {
    const float other = __shfl_xor_sync(kAllLanes, value, lanes);
    if (other > value) value = other;
  }
  return value;
}

/// Which columns of a tile belong to which of a warp's rows: column c to row r if low <= c - r <= high, c < end and
/// r < rows. One side is queries, the other keys that they see.
struct Band {
  int low, high, end, rows;

  __device__ bool has_all(int columns) const {
    return rows >= kWarpRows && end >= columns && low <= 1 - kWarpRows && high >= columns - 1;
  }
  __device__ bool has_none(int columns) const {
    return rows <= 0 || end <= 0 || low > columns - 1 || high < 1 - kWarpRows;
  }
};
/// The number, but no farther away than what is beyond every tile.
__device__ inline int nearest(int64_t x) {
  constexpr int64_t kBeyond = 1 << 20;
  return static_cast<int>(most(-kBeyond, least(x, kBeyond)));
}
/// Rows: queries of the sequence from `query` on. Columns: its keys from `key` on.
__device__ inline Band keys_seen(const AttentionSizes& s, const SpanOnDevice& span, int64_t query, int64_t key) {
  constexpr int64_t kFar = int64_t{1} << 40;
  const int64_t position = span.first_position + query - key;
  const int64_t last = s.window > 0 ? position + s.window - 1 : kFar;
  return {nearest(s.window > 0 ? position - s.window + 1 : -kFar), nearest(s.causal ? position : last),
          nearest(span.k_length - key), nearest(span.q_length - query)};
}
/// Rows: `keys` keys of the sequence from `key` on. Columns: the queries from `query` on that see them.
__device__ inline Band queries_seeing(const AttentionSizes& s, const SpanOnDevice& span, int64_t key, int64_t keys,
                                      int64_t query) {
  constexpr int64_t kFar = int64_t{1} << 40;
  const int64_t first = key - span.first_position - query;
  const int64_t earliest = s.window > 0 ? first - s.window + 1 : -kFar;
  return {nearest(s.causal ? first : earliest), nearest(s.window > 0 ? first + s.window - 1 : kFar),
          nearest(span.q_length - query), nearest(keys)};
}

/// A band as a lane asks for its own elements.
class LaneBand {
 public:
  __device__ explicit LaneBand(const Band& band) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize, row = lane / 4, column = lane % 4 * 2;
    low_ = band.low - column + row, high_ = band.high - column + row;
    end_ = band.end - column, rows_ = band.rows - row;
  }
  /// Element i of tile n.
  __device__ bool has(int n, int i) const {
    const int row = i / 2 * 8, column = 8 * n + i % 2;
    return column - row >= low_ && column - row <= high_ && column < end_ && row < rows_;
  }

 private:
  int low_, high_, end_, rows_;
};

/// How a product of query and key becomes its score in powers of 2: capped() first, where there is a cap, and then by
/// the factor.
struct ScoreScale {
  float factor, scale, cap;
  bool is_capped;
};
__device__ inline ScoreScale score_scale_of(const AttentionSizes& s) {
  const auto scale = static_cast<float>(s.scale), cap = static_cast<float>(s.softcap);
  // The largest product is to be the largest score: else products are scaled before they are compared.
  if (cap == 0 && scale > 0) return {scale * kLog2E, scale, 0, false};
  return {1, scale, cap, true};
}
/// A score, and its slope by the product but for the scale.
struct CappedScore {
  float value, slope;
};
__device__ inline CappedScore capped(const ScoreScale& scale, float product) {
  const float plain = scale.scale * product;
  if (scale.cap == 0) return {plain * kLog2E, 1};
  const float t = tanhf(plain / scale.cap);
  return {scale.cap * t * kLog2E, 1 - t * t};
}

/// True where kernels need no cap, and can load all heads by packs.
inline bool is_common(const AttentionSizes& s, std::initializer_list<bool> packs) {
  bool all = s.softcap == 0 && s.scale > 0 && s.head_dim % 8 == 0 && s.value_dim % 8 == 0;
  for (const bool each : packs) all = all && each;
  return all;
}

/// Calls f(std::type_identity<T>, std::integral_constant<int, kDim>) for the dtype, and the size that heads are padded
/// to.
template <class F>
void with_heads(DType dtype, const AttentionSizes& s, const F& f) {
  const int64_t columns = s.head_dim > s.value_dim ? s.head_dim : s.value_dim;
  const auto with_size = [&](auto type) {
    if (columns <= 32) return f(type, std::integral_constant<int, 32>());
    if (columns <= 64) return f(type, std::integral_constant<int, 64>());
    if (columns <= 128) return f(type, std::integral_constant<int, 128>());
    f(type, std::integral_constant<int, 256>());
  };
  dtype == DType::bf16 ? with_size(std::type_identity<bf16_t>()) : with_size(std::type_identity<f16_t>());
}

/// True if packs can be loaded of every head.
inline bool has_packs(const HeadArray& heads) {
  return are_aligned(heads.array.at) && heads.token_stride % 8 == 0 && heads.head_stride % 8 == 0;
}

template <class T>
__device__ inline const T* head_of(const HeadArray& heads, int64_t token, int64_t head) {
  return heads.array.as<const T>() + token * heads.token_stride + head * heads.head_stride;
}

/// Two neighbours of a row that begins at `row`: elements `column` and the next, of `dim`. As put().
template <class T>
__device__ inline void put_pair(const Array& to, int64_t row, int column, int64_t dim, float low, float high,
                                bool accumulate) {
  const int64_t at = row + column;
  if (column + 1 < dim && at % 2 == 0 && !accumulate && to.dtype == dtype_of_v<T> &&
      reinterpret_cast<uintptr_t>(to.at) % 4 == 0) {
    static_cast<uint32_t*>(to.at)[at / 2] = packed<T>(low, high);
    return;
  }
  if (column < dim) put<T>(to, at, low, accumulate);
  if (column + 1 < dim) put<T>(to, at + 1, high, accumulate);
}

}  // namespace nought::cuda
