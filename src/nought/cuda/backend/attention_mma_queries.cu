// The gradients of queries by tensor cores: each warp of a block has 16 queries of a head, and goes over the
// keys that they see, of which the next come while the ones before are multiplied.
#include "nought/cuda/backend/attention_mma_backward.h"

namespace nought::cuda {
namespace {

template <class T, bool kCommon, int kDim, int kKeys, int kBlocks>
__global__ void __launch_bounds__(kMmaThreads, (blocks_beside<kCommon, kDim, kKeys, kBlocks>()))
    d_queries_mma_kernel(AttentionBackwardArrays a, AttentionSizes s, BackwardPacks packs) {
  constexpr int kTiles = kKeys / 8, kColumns = kDim / 8;
  using Tiles = BackwardTiles<kDim, kMmaRows, kKeys>;
  constexpr bool kTogether = by_warpgroup<kDim, kKeys>();
  NOUGHT_DYNAMIC_SHARED(Row8, tile);
  const int warp_row = static_cast<int>(threadIdx.x) / kWarpSize * kWarpRows;
  const int head_dim = static_cast<int>(s.head_dim), value_dim = static_cast<int>(s.value_dim);
  const int64_t out_stride = s.num_heads * s.value_dim;
  const ScoreScale scale = score_scale_of(s);
  for (int64_t work = blockIdx.x; work < s.query_tiles * s.num_heads; work += gridDim.x) {
    const QueryTile at = query_tile(s, s.query_tiles - 1 - work % s.query_tiles);
    const SpanOnDevice& span = at.span;
    const int64_t head = work / s.query_tiles, kv_head = head / (s.num_heads / s.num_kv_heads);
    const int count = static_cast<int>(least(kMmaRows, span.q_length - at.begin));
    const int64_t token = span.q_begin + at.begin;
    const Range range = keys_of(s, span, at.begin, at.begin + count);
    const T *const keys = head_of<T>(a.k, span.k_begin, kv_head), *const values =
                                                                      head_of<T>(a.v, span.k_begin, kv_head);
    const auto fetch_keys = [&](int64_t first, int stage) {
      const int those = static_cast<int>(least(kKeys, range.end - first));
      fetch<T, kCommon>(tile, Tiles::met(0, stage), keys + first * a.k.token_stride, a.k.token_stride, those, head_dim,
                        packs.k);
      fetch<T, kCommon>(tile, Tiles::met(1, stage), values + first * a.v.token_stride, a.v.token_stride, those,
                        value_dim, packs.v);
    };
    __syncthreads();  // the tiles before have been read
    fetch<T, kCommon>(tile, Tiles::kept(0), head_of<T>(a.q, token, head), a.q.token_stride, count, head_dim, packs.q);
    fetch<T, kCommon>(tile, Tiles::kept(1), a.d_out.as<const T>() + token * out_stride + head * s.value_dim, out_stride,
                      count, value_dim, packs.d_out);
    if (range.begin < range.end) fetch_keys(range.begin, 0);
    commit_copies();
    float lse[2], delta[2];
    for_each_row([&](int half, int row) {
      const int64_t query = at.begin + warp_row + row;
      const bool exists = query < span.q_length;
      lse[half] = exists ? a.lse.as<const float>()[statistic_at(s, span, head, query)] * kLog2E : 0.F;
      delta[half] = exists ? a.delta.as<const float>()[(span.q_begin + query) * s.num_heads + head] : 0.F;
    });
    float sums[kColumns][4] = {};
    int stage = 0;
    for (int64_t first = range.begin; first < range.end; first += kKeys, stage ^= 1) {
      wait_for_copies<0>();
      __syncthreads();  // these keys are there, and those before have been read
      if (first + kKeys < range.end) fetch_keys(first + kKeys, stage ^ 1);
      commit_copies();
      const Band band = keys_seen(s, span, at.begin + warp_row, first);
      if (!kTogether && band.has_none(kKeys)) continue;  // all lanes
      const auto k = Tiles::met(0, stage), v = Tiles::met(1, stage);
      float scores[kTiles][4] = {}, gradients[kTiles][4] = {};
      begin_products<kTogether>();
      add_products<T>(scores, tile, Tiles::kept(0), warp_row, k);
      add_products<T>(gradients, tile, Tiles::kept(1), warp_row, v);
      end_products<kTogether>();
      for_each_element<kTiles>([&](int n, int i, int /*column*/) {
        form_gradient<kCommon>(scale, lse[i / 2], delta[i / 2], scores[n][i], gradients[n][i]);
      });
      if (!band.has_all(kKeys)) clear_unseen(band, scores, gradients);
      begin_products<kTogether>();
      add_weighted<T>(sums, gradients, tile, k, 0);
      end_products<kTogether>();
    }
    put_rows<T>(a.dq, token, head, count, warp_row, sums, 0, scale.scale, s.head_dim, a.accumulate_q);
  }
}

template <class T, int kDim, int kKeys, int kBlocks>
void start_queries(const Launch& where, const AttentionBackwardArrays& a, const AttentionSizes& s) {
  const BackwardPacks packs = backward_packs_of(a, s);
  auto* const kernel = is_common(s, packs) ? &d_queries_mma_kernel<T, true, kDim, kKeys, kBlocks>
                                           : &d_queries_mma_kernel<T, false, kDim, kKeys, kBlocks>;
  launch_with(where, s.query_tiles * s.num_heads, dim3(kMmaThreads), BackwardTiles<kDim, kMmaRows, kKeys>::bytes(),
              kernel, a, s, packs);
}

}  // namespace

void attention_queries_mma(const Launch& where, const AttentionBackwardArrays& a, const AttentionSizes& s) {
  with_heads(a.q.array.dtype, s, [&](auto type, auto dim) {
    using T = typename decltype(type)::type;
    constexpr int kDim = decltype(dim)::value;
    if constexpr (kDim == 128)
      if (!has_warpgroups()) return start_queries<T, kDim, 32, 2>(where, a, s);
    start_queries<T, kDim, kDim <= 128 ? 64 : 32, kDim <= 64 ? 4 : 2>(where, a, s);
  });
}

}  // namespace nought::cuda
