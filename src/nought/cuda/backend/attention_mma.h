// What the kernels of attention on tensor cores are made of: tiles of shared memory, and products of a warp.
//
// A tile is rows of 16 bytes, eight elements each, in rows of an odd number of them: then the eight rows of a matrix
// lie in different banks. A warp has 16 rows of a product. In its registers, lane l has rows l / 4 and l / 4 + 8, and
// of each eight columns 2 (l % 4) and the next.
#pragma once

#include "nought/cuda/backend/attention_tiles.h"

namespace nought::cuda {

/// Eight elements of 16 bits.
using Row8 = Pack<uint16_t, 8>;

inline constexpr int kWarpRows = 16;

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
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}
#else
using emulation::load_matrices;
using emulation::mma;
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

/// Packs of 16 bytes that hold a row, to a multiple of 16 elements; and those from one row to the next.
__host__ __device__ inline int packs_of(int64_t dim) { return static_cast<int>((dim + 15) / 16) * 2; }
__host__ __device__ inline int pitch8_of(int64_t dim) { return packs_of(dim) + 1; }

/// Rows of a tile: where it begins in shared memory, and how many elements a row has.
struct TileRows {
  int at, dim;
  __device__ int row(int r) const { return at + r * pitch8_of(dim); }
  __device__ int steps() const { return packs_of(dim) / 2; }
};

/// Copies `rows` rows, and zeros up to kCapacity rows and the end of packs. Threads are kThreadsOf.
template <class T, int kCapacity, int kThreadsOf, class Tile>
__device__ void fetch8(const Tile& tile, const TileRows& to, const T* from, int64_t stride, int64_t rows,
                       bool aligned) {
  const int packs = packs_of(to.dim);
  for (int e = static_cast<int>(threadIdx.x); e < kCapacity * packs; e += kThreadsOf) {
    const int r = e / packs, pack = e % packs, i = pack * 8;
    Pack<T, 8> values{};
    const T* const source = from + r * stride + i;
    if (r < rows && aligned && i + 8 <= to.dim) {
      values = load<8>(source);
    } else if (r < rows) {
      for (int k = 0; k < 8; ++k)
        if (i + k < to.dim) values.values[k] = source[k];
    }
    tile[to.row(r) + pack] = std::bit_cast<Row8>(values);
  }
}

/// sums[n] += a b' for the warp's 16 rows of a, from `first` on, and 8 kTiles rows of b.
template <class T, int kTiles, class Tile>
__device__ void add_products(float (&sums)[kTiles][4], const Tile& tile, const TileRows& a, int first,
                             const TileRows& b) {
  static_assert(kTiles % 2 == 0);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, half = lane / 8 % 2, quarter = lane / 16;
  for (int step = 0; step < a.steps(); ++step) {
    uint32_t left[4];
    load_matrices<false, Row8>(left, tile, a.row(first + lane % 8 + 8 * half) + 2 * step + quarter);
    NOUGHT_UNROLL
    for (int n = 0; n < kTiles; n += 2) {
      uint32_t right[4];
      load_matrices<false, Row8>(right, tile, b.row(8 * n + lane % 8 + 8 * quarter) + 2 * step + half);
      mma<T>(sums[n], left, {right[0], right[1]});
      mma<T>(sums[n + 1], left, {right[2], right[3]});
    }
  }
}

/// sums += weights b: 8 kTiles rows of b, of which the warp takes 8 kColumns columns from `first` on.
template <class T, int kColumns, int kTiles, class Tile>
__device__ void add_weighted(float (&sums)[kColumns][4], const float (&weights)[kTiles][4], const Tile& tile,
                             const TileRows& b, int first) {
  static_assert(kTiles % 2 == 0 && kColumns % 2 == 0);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, half = lane / 8 % 2, quarter = lane / 16;
  NOUGHT_UNROLL
  for (int k = 0; k < kTiles; k += 2) {
    const float(&low)[4] = weights[k], (&high)[4] = weights[k + 1];
    const uint32_t left[4] = {packed<T>(low[0], low[1]), packed<T>(low[2], low[3]), packed<T>(high[0], high[1]),
                              packed<T>(high[2], high[3])};
    NOUGHT_UNROLL
    for (int n = 0; n < kColumns; n += 2) {
      if (first / 8 + n >= packs_of(b.dim)) continue;  // the same in all lanes
      uint32_t right[4];
      load_matrices<true, Row8>(right, tile, b.row(8 * k + lane % 8 + 8 * half) + first / 8 + n + quarter);
      mma<T>(sums[n], left, {right[0], right[1]});
      mma<T>(sums[n + 1], left, {right[2], right[3]});
    }
  }
}

/// Calls f(n, i, row, column) for what a lane has of a product: sums[n][i] is of that row of the warp and that column.
template <int kTiles, class F>
__device__ inline void for_each_element(const F& f) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  NOUGHT_UNROLL
  for (int n = 0; n < kTiles; ++n) {
    NOUGHT_UNROLL
    for (int i = 0; i < 4; ++i) f(n, i, lane / 4 + i / 2 * 8, 8 * n + lane % 4 * 2 + i % 2);
  }
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

/// True if packs can be loaded of every head.
inline bool has_packs(const HeadArray& heads) {
  return are_aligned(heads.array.at) && heads.token_stride % 8 == 0 && heads.head_stride % 8 == 0;
}

template <class T>
__device__ inline const T* head_of(const HeadArray& heads, int64_t token, int64_t head) {
  return heads.array.as<const T>() + token * heads.token_stride + head * heads.head_stride;
}

}  // namespace nought::cuda
