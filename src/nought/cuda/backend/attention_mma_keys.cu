// The gradients of keys and values by tensor cores: each warp of a block has 16 keys of a key/value head, and
// goes over the queries of all heads that see them, of which the next come while the ones before are multiplied. Where
// heads have more than 128 elements, other warps have the columns behind them, and form the same scores.
#include "nought/cuda/backend/attention_mma_backward.h"

namespace nought::cuda {
namespace {

/// A block's warps: so many have rows of their own, and so many the same rows.
template <int kDim>
inline constexpr int kColumnWarps = kDim > 128 ? 2 : 1;
template <int kDim>
inline constexpr int kKeyRows = kMmaWarps / kColumnWarps<kDim>* kWarpRows;

/// Goes over all queries that meet a tile of keys, in tiles, for each head of its group.
struct Meeting {
  int64_t sequence = -1, head = 0, first = 0, end = 0;
  SpanOnDevice span = {};
};

template <int kQueries>
class Meetings {
 public:
  __device__ Meetings(const AttentionSizes& s, const KeyTile& tile, int64_t kv_head)
      : s_(s), tile_(tile), group_(s.num_heads / s.num_kv_heads), kv_head_(kv_head) {
    at_.sequence = tile.sequences.begin - 1;
    next_sequence();
  }
  __device__ bool has() const { return at_.sequence < tile_.sequences.end; }
  __device__ const Meeting& get() const { return at_; }
  __device__ void next() {
    at_.first += kQueries;
    if (at_.first < at_.end) return;
    if (++at_.head < (kv_head_ + 1) * group_) {
      at_.first = begin_;
    } else {
      next_sequence();
    }
  }

 private:
  __device__ void next_sequence() {
    for (++at_.sequence; at_.sequence < tile_.sequences.end; ++at_.sequence) {
      at_.span = span_of(s_, at_.sequence);
      const int64_t keys = at_.span.k_begin;
      if (tile_.keys.begin < keys || tile_.keys.end > keys + at_.span.k_length) continue;
      const Range range = queries_of(s_, at_.span, tile_.keys.begin - keys, tile_.keys.end - keys);
      begin_ = range.begin / kQueries * kQueries;
      at_.first = begin_, at_.end = range.end, at_.head = kv_head_ * group_;
      if (at_.first < at_.end) return;
    }
  }

  const AttentionSizes& s_;
  const KeyTile& tile_;
  int64_t group_, kv_head_, begin_ = 0;
  Meeting at_;
};

template <class T, bool kCommon, int kDim, int kQueries, int kBlocks>
__global__ void __launch_bounds__(kMmaThreads, (blocks_beside<kCommon, kDim, kQueries, kBlocks>()))
    d_keys_mma_kernel(AttentionBackwardArrays a, AttentionSizes s, BackwardPacks packs) {
  constexpr int kRows = kKeyRows<kDim>, kTiles = kQueries / 8;
  constexpr int kRowWarps = kMmaWarps / kColumnWarps<kDim>, kColumns = kDim / 8 / kColumnWarps<kDim>;
  using Tiles = BackwardTiles<kDim, kRows, kQueries>;
  constexpr bool kTogether = by_warpgroup<kDim, kQueries>();
  NOUGHT_DYNAMIC_SHARED(Row8, tile);
  NOUGHT_SHARED(float, lse, 2 * kQueries);
  NOUGHT_SHARED(float, delta, 2 * kQueries);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarpSize;
  const int warp_row = warp % kRowWarps * kWarpRows, first_column = warp / kRowWarps * kColumns * 8;
  const int head_dim = static_cast<int>(s.head_dim), value_dim = static_cast<int>(s.value_dim);
  const int64_t out_stride = s.num_heads * s.value_dim;
  const ScoreScale scale = score_scale_of(s);
  const auto fetch_queries = [&](const Meeting& at, int stage) {
    const int64_t token = at.span.q_begin + at.first;
    const int those = static_cast<int>(least(kQueries, at.span.q_length - at.first));
    fetch<T, kCommon>(tile, Tiles::met(0, stage), head_of<T>(a.q, token, at.head), a.q.token_stride, those, head_dim,
                      packs.q);
    fetch<T, kCommon>(tile, Tiles::met(1, stage), a.d_out.as<const T>() + token * out_stride + at.head * s.value_dim,
                      out_stride, those, value_dim, packs.d_out);
    if (thread < kQueries) {
      const bool exists = thread < those;
      const int64_t query = at.first + (exists ? thread : 0);
      copy_async(lse, stage * kQueries + thread, a.lse.as<const float>() + statistic_at(s, at.span, at.head, query),
                 exists);
      copy_async(delta, stage * kQueries + thread,
                 a.delta.as<const float>() + (at.span.q_begin + query) * s.num_heads + at.head, exists);
    }
  };
  for (int64_t work = blockIdx.x; work < s.key_tiles * s.num_kv_heads; work += gridDim.x) {
    // The first tiles of a head are the longest where masks are causal.
    const KeyTile at = key_tile(s, work % s.key_tiles);
    const int64_t kv_head = work / s.key_tiles, begin = at.keys.begin;
    const int count = static_cast<int>(at.keys.end - begin);
    Meetings<kQueries> coming(s, at, kv_head);
    const auto band_of = [&](const Meeting& met) {
      return queries_seeing(s, met.span, begin + warp_row - met.span.k_begin, count - warp_row, met.first);
    };
    __syncthreads();  // the tiles before have been read
    fetch<T, kCommon>(tile, Tiles::kept(0), head_of<T>(a.k, begin, kv_head), a.k.token_stride, count, head_dim,
                      packs.k);
    fetch<T, kCommon>(tile, Tiles::kept(1), head_of<T>(a.v, begin, kv_head), a.v.token_stride, count, value_dim,
                      packs.v);
    Band next{};
    if (coming.has()) next = band_of(coming.get()), fetch_queries(coming.get(), 0);
    commit_copies();
    float d_key[kColumns][4] = {}, d_value[kColumns][4] = {};
    for (int stage = 0; coming.has(); stage ^= 1) {
      const Band band = next;
      coming.next();
      wait_for_copies<0>();
      __syncthreads();  // these queries are there, and those before have been read
      if (coming.has()) next = band_of(coming.get()), fetch_queries(coming.get(), stage ^ 1);
      commit_copies();
      if (!kTogether && band.has_none(kQueries)) continue;  // all lanes
      const auto q = Tiles::met(0, stage), d_out = Tiles::met(1, stage);
      float scores[kTiles][4] = {}, gradients[kTiles][4] = {};
      begin_products<kTogether>();
      add_products<T>(scores, tile, Tiles::kept(0), warp_row, q);
      add_products<T>(gradients, tile, Tiles::kept(1), warp_row, d_out);
      end_products<kTogether>();
      for_each_element<kTiles>([&](int n, int i, int column) {
        const int query = stage * kQueries + column;
        form_gradient<kCommon>(scale, lse[query] * kLog2E, delta[query], scores[n][i], gradients[n][i]);
      });
      if (!band.has_all(kQueries)) clear_unseen(band, scores, gradients);
      begin_products<kTogether>();
      add_weighted<T>(d_key, gradients, tile, q, first_column);
      add_weighted<T>(d_value, scores, tile, d_out, first_column);
      end_products<kTogether>();
    }
    put_rows<T>(a.dk, begin, kv_head, count, warp_row, d_key, first_column, scale.scale, s.head_dim, a.accumulate_kv);
    put_rows<T>(a.dv, begin, kv_head, count, warp_row, d_value, first_column, 1, s.value_dim, a.accumulate_kv);
  }
}

template <class T, int kDim, int kQueries, int kBlocks>
void start_keys(const Launch& where, const AttentionBackwardArrays& a, const AttentionSizes& s) {
  constexpr int kRows = kKeyRows<kDim>;
  static_assert(kRows == mma_key_rows(kDim));
  const BackwardPacks packs = backward_packs_of(a, s);
  auto* const kernel = is_common(s, packs) ? &d_keys_mma_kernel<T, true, kDim, kQueries, kBlocks>
                                           : &d_keys_mma_kernel<T, false, kDim, kQueries, kBlocks>;
  launch_with(where, s.key_tiles * s.num_kv_heads, dim3(kMmaThreads), BackwardTiles<kDim, kRows, kQueries>::bytes(),
              kernel, a, s, packs);
}

}  // namespace

void attention_keys_mma(const Launch& where, const AttentionBackwardArrays& a, const AttentionSizes& s) {
  with_heads(a.q.array.dtype, s, [&](auto type, auto dim) {
    using T = typename decltype(type)::type;
    constexpr int kDim = decltype(dim)::value;
    if constexpr (kDim == 128)
      if (!has_warpgroups()) return start_keys<T, kDim, 32, 2>(where, a, s);
    start_keys<T, kDim, kDim <= 128 ? 64 : 16, kDim <= 64 ? 3 : 2>(where, a, s);
  });
}

}  // namespace nought::cuda
