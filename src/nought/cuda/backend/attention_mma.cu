// Attention of bf16 and f16 on tensor cores: each warp of a block has 16 queries of a head. Keys come while
// values before them are multiplied, and values while scores are formed.
#include "nought/cuda/backend/attention_mma.h"

namespace nought::cuda {
namespace {

/// Which operands can be loaded by packs.
struct Packs {
  bool q, k, v;
};

template <int kDim, int kKeys>
struct ForwardTiles {
  using Queries = MmaTile<kDim, kMmaRows>;
  using Keys = MmaTile<kDim, kKeys>;
  __host__ __device__ static constexpr Queries q() { return {0}; }
  __host__ __device__ static constexpr Keys k() { return {Queries::kSize}; }
  __host__ __device__ static constexpr Keys v() { return {Queries::kSize + Keys::kSize}; }
  static constexpr size_t bytes() { return static_cast<size_t>(Queries::kSize + 2 * Keys::kSize) * sizeof(Row8); }
};

/// What a lane knows of the softmax of its rows: the largest products so far, and its part of the sums beside them.
struct RunningSoftmax {
  float largest[2], total[2];

  template <class T>
  __device__ RunningSoftmax(const T* sinks, int64_t head, float factor) {
    const bool has_sink = sinks != nullptr;
    for (int half = 0; half < 2; ++half) {
      largest[half] = has_sink ? static_cast<float>(sinks[head]) * kLog2E / factor : kMinusInfinity<float>;
      total[half] = has_sink && threadIdx.x % 4 == 0 ? 1.F : 0.F;
    }
  }
  /// Turns products into weights. Returns by what each row's sums are multiplied.
  template <int kTiles>
  __device__ void take(float (&products)[kTiles][4], float factor, float (&by)[2]) {
    float scaled[2];
    for_each_row([&](int half, int /*row*/) {
      float most_of = kMinusInfinity<float>;
      NOUGHT_UNROLL
      for (int n = 0; n < kTiles; ++n)
        for (int i = 2 * half; i < 2 * half + 2; ++i)
          if (products[n][i] > most_of) most_of = products[n][i];
      most_of = quad_largest(most_of);
      float& before = largest[half];
      const float now = most_of > before ? most_of : before;
      by[half] = before == kMinusInfinity<float> ? 0.F : power_of_2((before - now) * factor);
      before = now;
      scaled[half] = now == kMinusInfinity<float> ? 0.F : now * factor;
      total[half] *= by[half];
    });
    for_each_element<kTiles>([&](int n, int i, int /*column*/) {
      float& weight = products[n][i];
      weight = power_of_2(fmaf(weight, factor, -scaled[i / 2]));  // a NaN stays one
      total[i / 2] += weight;
    });
  }
};

template <class T, bool kCommon, int kDim, int kKeys, int kBlocks>
__global__ void __launch_bounds__(kMmaThreads, (blocks_beside<kCommon, kDim, kKeys, kBlocks>()))
    attention_mma_kernel(AttentionArrays a, AttentionSizes s, Packs packs) {
  using Tiles = ForwardTiles<kDim, kKeys>;
  constexpr int kTiles = kKeys / 8, kColumns = kDim / 8;
  constexpr bool kTogether = by_warpgroup<kDim, kKeys>();
  NOUGHT_DYNAMIC_SHARED(Row8, tile);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp_row = static_cast<int>(threadIdx.x) / kWarpSize * kWarpRows;
  const int head_dim = static_cast<int>(s.head_dim), value_dim = static_cast<int>(s.value_dim);
  const ScoreScale scale = score_scale_of(s);
  for (int64_t work = blockIdx.x; work < s.query_tiles * s.num_heads; work += gridDim.x) {
    // The last tiles of a head come first: where masks are causal, they are the longest.
    const QueryTile at = query_tile(s, s.query_tiles - 1 - work % s.query_tiles);
    const SpanOnDevice& span = at.span;
    const int64_t head = work / s.query_tiles, kv_head = head / (s.num_heads / s.num_kv_heads);
    const int count = static_cast<int>(least(kMmaRows, span.q_length - at.begin));
    const Range range = keys_of(s, span, at.begin, at.begin + count);
    const T *const keys = head_of<T>(a.k, span.k_begin, kv_head), *const values =
                                                                      head_of<T>(a.v, span.k_begin, kv_head);
    const auto fetch_keys = [&](int64_t first) {
      fetch<T, kCommon>(tile, Tiles::k(), keys + first * a.k.token_stride, a.k.token_stride,
                        static_cast<int>(least(kKeys, range.end - first)), head_dim, packs.k);
    };
    // Queries and keys of the tile before have been read: the last barrier was behind them.
    fetch<T, kCommon>(tile, Tiles::q(), head_of<T>(a.q, span.q_begin + at.begin, head), a.q.token_stride, count,
                      head_dim, packs.q);
    if (range.begin < range.end) fetch_keys(range.begin);
    commit_copies();
    RunningSoftmax softmax(a.sinks.as<const T>(), head, scale.factor);
    float sums[kColumns][4] = {};
    for (int64_t first = range.begin; first < range.end; first += kKeys) {
      wait_for_copies<0>();
      __syncthreads();  // the keys are there, and the values before have been read
      fetch<T, kCommon>(tile, Tiles::v(), values + first * a.v.token_stride, a.v.token_stride,
                        static_cast<int>(least(kKeys, range.end - first)), value_dim, packs.v);
      commit_copies();
      float scores[kTiles][4] = {};
      const Band band = keys_seen(s, span, at.begin + warp_row, first);
      const bool meets = kTogether || !band.has_none(kKeys);  // the same in all lanes
      if (meets) {
        begin_products<kTogether>();
        add_products<T>(scores, tile, Tiles::q(), warp_row, Tiles::k());
        end_products<kTogether>();
      }
      wait_for_copies<0>();
      __syncthreads();  // the values are there, and the keys have been read
      if (first + kKeys < range.end) fetch_keys(first + kKeys);
      commit_copies();
      if (!meets) continue;
      if (!kCommon && scale.is_capped)
        for_each_element<kTiles>(
            [&](int n, int i, int /*column*/) { scores[n][i] = capped(scale, scores[n][i]).value; });
      if (!band.has_all(kKeys)) {
        const LaneBand seen(band);
        for_each_element<kTiles>([&](int n, int i, int /*column*/) {
          if (!seen.has(n, i)) scores[n][i] = kMinusInfinity<float>;
        });
      }
      float by[2];
      softmax.take(scores, scale.factor, by);
      for_each_element<kColumns>([&](int n, int i, int /*column*/) { sums[n][i] *= by[i / 2]; });
      begin_products<kTogether>();
      add_weighted<T>(sums, scores, tile, Tiles::v(), 0);
      end_products<kTogether>();
    }
    for_each_row([&](int half, int row) {
      const int64_t query = at.begin + warp_row + row;
      const float total = quad_sum(softmax.total[half]);
      if (query >= span.q_length) return;
      const int64_t out = ((span.q_begin + query) * s.num_heads + head) * s.value_dim;
      NOUGHT_UNROLL
      for (int n = 0; n < kColumns; ++n) {
        const float low = total == 0 ? 0.F : sums[n][2 * half] / total;
        const float high = total == 0 ? 0.F : sums[n][2 * half + 1] / total;
        put_pair<T>(a.out, out, 8 * n + lane % 4 * 2, s.value_dim, low, high, /*accumulate=*/false);
      }
      if (lane % 4 == 0)
        a.lse.as<float>()[statistic_at(s, span, head, query)] =
            total == 0 ? kMinusInfinity<float> : softmax.largest[half] * scale.factor * kLn2 + logf(total);
    });
  }
}

template <class T, int kDim, int kKeys, int kBlocks>
void start_forward(const Launch& where, const AttentionArrays& a, const AttentionSizes& s) {
  const Packs packs{has_packs(a.q), has_packs(a.k), has_packs(a.v)};
  auto* const kernel = is_common(s, {packs.q, packs.k, packs.v})
                           ? &attention_mma_kernel<T, true, kDim, kKeys, kBlocks>
                           : &attention_mma_kernel<T, false, kDim, kKeys, kBlocks>;
  launch_with(where, s.query_tiles * s.num_heads, dim3(kMmaThreads), ForwardTiles<kDim, kKeys>::bytes(), kernel, a, s,
              packs);
}

}  // namespace

void attention_mma(const Launch& where, const AttentionArrays& a, const AttentionSizes& s) {
  with_heads(a.q.array.dtype, s, [&](auto type, auto dim) {
    using T = typename decltype(type)::type;
    constexpr int kDim = decltype(dim)::value;
    start_forward<T, kDim, kDim <= 128 ? 64 : 32, kDim <= 64 ? 4 : 3>(where, a, s);
  });
}

}  // namespace nought::cuda
