// What both kernels of the gradients of attention on tensor cores share: tiles that come while others are multiplied,
// and how scores become their gradients.
#pragma once

#include "nought/cuda/backend/attention_mma.h"

namespace nought::cuda {

/// Which operands can be loaded by packs.
struct BackwardPacks {
  bool q, k, v, d_out;
};
inline BackwardPacks backward_packs_of(const AttentionBackwardArrays& a, const AttentionSizes& s) {
  const HeadArray d_out{a.d_out, s.num_heads * s.value_dim, s.value_dim};
  return {has_packs(a.q), has_packs(a.k), has_packs(a.v), has_packs(d_out)};
}
inline bool is_common(const AttentionSizes& s, const BackwardPacks& packs) {
  return is_common(s, {packs.q, packs.k, packs.v, packs.d_out});
}

/// True on devices whose warps multiply together. On others larger tiles would not leave registers for their sums.
inline bool has_warpgroups() {
  int device = 0, major = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  return major == 9;
}

/// Two tiles that a block keeps, and of two that it goes over one after the other, those it has and those that come.
template <int kDim, int kKept, int kMet>
struct BackwardTiles {
  using Kept = MmaTile<kDim, kKept>;
  using Met = MmaTile<kDim, kMet>;
  __host__ __device__ static constexpr Kept kept(int i) { return {i * Kept::kSize}; }
  __host__ __device__ static constexpr Met met(int i, int stage) {
    return {2 * Kept::kSize + (2 * stage + i) * Met::kSize};
  }
  static constexpr size_t bytes() { return static_cast<size_t>(2 * Kept::kSize + 4 * Met::kSize) * sizeof(Row8); }
};

/// Turns a product of query and key into its probability, and the product of d_out and value into the gradient of the
/// first but for the scale. `lse` is in powers of 2.
template <bool kCommon>
__device__ inline void form_gradient(const ScoreScale& scale, float lse, float delta, float& product, float& by_value) {
  by_value -= delta;
  if (!kCommon && scale.is_capped) {
    const CappedScore score = capped(scale, product);
    product = score.value, by_value *= score.slope;
  }
  product = power_of_2(fmaf(product, scale.factor, -lse));
  by_value *= product;
}
/// Both are 0 where the key is not seen.
template <int kTiles>
__device__ inline void clear_unseen(const Band& band, float (&scores)[kTiles][4], float (&gradients)[kTiles][4]) {
  const LaneBand seen(band);
  for_each_element<kTiles>([&](int n, int i, int /*column*/) {
    if (!seen.has(n, i)) scores[n][i] = gradients[n][i] = 0;
  });
}

/// A lane's elements of rows of heads [+]= its sums times `by`.
template <class T, int kColumns>
__device__ inline void put_rows(const HeadArray& heads, int64_t first_token, int64_t head, int rows, int warp_row,
                                const float (&sums)[kColumns][4], int first_column, float by, int64_t dim,
                                bool accumulate) {
  for_each_row([&](int half, int row) {
    if (warp_row + row >= rows) return;
    const int64_t begin = (first_token + warp_row + row) * heads.token_stride + head * heads.head_stride;
    NOUGHT_UNROLL
    for (int n = 0; n < kColumns; ++n)
      put_pair<T>(heads.array, begin, first_column + 8 * n + static_cast<int>(threadIdx.x) % 4 * 2, dim,
                  sums[n][2 * half] * by, sums[n][2 * half + 1] * by, accumulate);
  });
}

}  // namespace nought::cuda
