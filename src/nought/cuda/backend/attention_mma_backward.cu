// The gradients of attention of bf16 and f16 on tensor cores. A block has 64 queries of a head (dq), or 64 keys of a
// key/value head (dk and dv), and goes over the keys or queries that they meet in tiles. Where heads have more than 128
// elements, a second set of warps has the columns behind them, and forms the same scores.
#include "nought/cuda/backend/attention_mma.h"

namespace nought::cuda {
namespace {

constexpr int kRowWarps = static_cast<int>(kMmaRows) / kWarpRows, kColumnTiles = 16;
constexpr int kRows = static_cast<int>(kMmaRows);
constexpr int kKeysMet = 32, kQueriesMet = 16;  // more queries would not leave registers for both sums

struct BackwardPacks {
  bool q, k, v, d_out;
};

/// Tiles of queries, keys, values and d_out, of so many rows, in shared memory.
struct BackwardTiles {
  TileRows q, k, v, d_out;
  int end;
  __host__ __device__ BackwardTiles(const AttentionSizes& s, int queries, int keys)
      : q{0, static_cast<int>(s.head_dim)},
        k{queries * pitch8_of(s.head_dim), q.dim},
        v{k.at + keys * pitch8_of(s.head_dim), static_cast<int>(s.value_dim)},
        d_out{v.at + keys * pitch8_of(s.value_dim), v.dim},
        end(d_out.at + queries * pitch8_of(s.value_dim)) {}
};

/// A query's lse and its sum of out * d_out; 0 where there is none.
struct Statistics {
  float lse = 0, delta = 0;
};
__device__ inline Statistics statistics_of(const AttentionBackwardArrays& a, const AttentionSizes& s,
                                           const SpanOnDevice& span, int64_t head, int64_t i) {
  if (i >= span.q_length) return {};
  return {a.lse.as<const float>()[statistic_at(s, span, head, i)],
          a.delta.as<const float>()[(span.q_begin + i) * s.num_heads + head]};
}

/// Turns a product of query and key into its probability, and the product of d_out and value into the gradient of the
/// first; 0 where the key is not seen.
__device__ inline void form_gradient(const AttentionSizes& s, bool seen, const Statistics& of, float& product,
                                     float& by_value) {
  if (!seen) {
    product = by_value = 0;
    return;
  }
  const auto [value, slope] = score_of(s, product);
  product = exp(value - of.lse);
  by_value = product * (by_value - of.delta) * slope;
}

/// A lane's elements of rows of heads [+]= its sums.
template <class T>
__device__ void put_rows(const HeadArray& heads, int64_t first_token, int64_t head, const bool (&exists)[2],
                         const float (&sums)[kColumnTiles][4], int first_column, int64_t dim, bool accumulate) {
  for_each_element<kColumnTiles>([&](int n, int i, int row, int column) {
    if (!exists[i / 2] || first_column + column >= dim) return;
    put<T>(heads.array, (first_token + row) * heads.token_stride + head * heads.head_stride + first_column + column,
           sums[n][i], accumulate);
  });
}

template <class T, int kColumnWarps>
__global__ void __launch_bounds__(kRowWarps* kColumnWarps* kWarpSize)
    d_queries_mma_kernel(AttentionBackwardArrays a, AttentionSizes s, BackwardPacks packs) {
  constexpr int kAll = kRowWarps * kColumnWarps * kWarpSize;
  NOUGHT_DYNAMIC_SHARED(Row8, tile);
  const BackwardTiles tiles(s, kRows, kKeysMet);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize, lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp_row = warp % kRowWarps * kWarpRows, first_column = warp / kRowWarps * kColumnTiles * 8;
  const int64_t out_stride = s.num_heads * s.value_dim;
  for (int64_t work = blockIdx.x; work < s.query_tiles * s.num_heads; work += gridDim.x) {
    const QueryTile at = query_tile(s, work / s.num_heads);
    const SpanOnDevice& span = at.span;
    const int64_t head = work % s.num_heads, kv_head = head / (s.num_heads / s.num_kv_heads);
    const int64_t count = least(kRows, span.q_length - at.begin), token = span.q_begin + at.begin;
    __syncthreads();  // the tiles before have been read
    fetch8<T, kRows, kAll>(tile, tiles.q, head_of<T>(a.q, token, head), a.q.token_stride, count, packs.q);
    fetch8<T, kRows, kAll>(tile, tiles.d_out, a.d_out.as<const T>() + token * out_stride + head * s.value_dim,
                           out_stride, count, packs.d_out);
    const int64_t own = at.begin + warp_row + lane / 4;
    const Statistics of[2] = {statistics_of(a, s, span, head, own), statistics_of(a, s, span, head, own + 8)};
    float sums[kColumnTiles][4] = {};
    const Range range = keys_of(s, span, at.begin, at.begin + count);
    for (int64_t first = range.begin; first < range.end; first += kKeysMet) {
      const int64_t key = span.k_begin + first, those = least(kKeysMet, range.end - first);
      __syncthreads();  // the keys before have been read
      fetch8<T, kKeysMet, kAll>(tile, tiles.k, head_of<T>(a.k, key, kv_head), a.k.token_stride, those, packs.k);
      fetch8<T, kKeysMet, kAll>(tile, tiles.v, head_of<T>(a.v, key, kv_head), a.v.token_stride, those, packs.v);
      __syncthreads();
      float scores[kKeysMet / 8][4] = {}, gradients[kKeysMet / 8][4] = {};
      add_products<T>(scores, tile, tiles.q, warp_row, tiles.k);
      add_products<T>(gradients, tile, tiles.d_out, warp_row, tiles.v);
      for_each_element<kKeysMet / 8>([&](int n, int i, int row, int column) {
        form_gradient(s, sees(s, span, at.begin + warp_row + row, first + column), of[i / 2], scores[n][i],
                      gradients[n][i]);
      });
      add_weighted<T>(sums, gradients, tile, tiles.k, first_column);
    }
    put_rows<T>(a.dq, token + warp_row, head, {own < span.q_length, own + 8 < span.q_length}, sums, first_column,
                s.head_dim, a.accumulate_q);
  }
}

template <class T, int kColumnWarps>
__global__ void __launch_bounds__(kRowWarps* kColumnWarps* kWarpSize)
    d_keys_mma_kernel(AttentionBackwardArrays a, AttentionSizes s, BackwardPacks packs) {
  constexpr int kAll = kRowWarps * kColumnWarps * kWarpSize;
  NOUGHT_DYNAMIC_SHARED(Row8, tile);
  const BackwardTiles tiles(s, kQueriesMet, kRows);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize, lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp_row = warp % kRowWarps * kWarpRows, first_column = warp / kRowWarps * kColumnTiles * 8;
  const int64_t out_stride = s.num_heads * s.value_dim, group = s.num_heads / s.num_kv_heads;
  for (int64_t work = blockIdx.x; work < s.key_tiles * s.num_kv_heads; work += gridDim.x) {
    const KeyTile at = key_tile(s, work / s.num_kv_heads);
    const int64_t kv_head = work % s.num_kv_heads, begin = at.keys.begin, end = at.keys.end;
    const int64_t own = begin + warp_row + lane / 4;
    __syncthreads();  // the tiles before have been read
    fetch8<T, kRows, kAll>(tile, tiles.k, head_of<T>(a.k, begin, kv_head), a.k.token_stride, end - begin, packs.k);
    fetch8<T, kRows, kAll>(tile, tiles.v, head_of<T>(a.v, begin, kv_head), a.v.token_stride, end - begin, packs.v);
    float d_key[kColumnTiles][4] = {}, d_value[kColumnTiles][4] = {};
    for (int64_t b = at.sequences.begin; b < at.sequences.end; ++b) {
      const SpanOnDevice span = span_of(s, b);
      if (begin < span.k_begin || end > span.k_begin + span.k_length) continue;
      const Range range = queries_of(s, span, begin - span.k_begin, end - span.k_begin);
      for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
        for (int64_t first = range.begin / kQueriesMet * kQueriesMet; first < range.end; first += kQueriesMet) {
          const int64_t token = span.q_begin + first, those = least(kQueriesMet, span.q_length - first);
          __syncthreads();  // the queries before have been read
          fetch8<T, kQueriesMet, kAll>(tile, tiles.q, head_of<T>(a.q, token, head), a.q.token_stride, those, packs.q);
          fetch8<T, kQueriesMet, kAll>(tile, tiles.d_out,
                                       a.d_out.as<const T>() + token * out_stride + head * s.value_dim, out_stride,
                                       those, packs.d_out);
          __syncthreads();
          float scores[kQueriesMet / 8][4] = {}, gradients[kQueriesMet / 8][4] = {};
          add_products<T>(scores, tile, tiles.k, warp_row, tiles.q);
          add_products<T>(gradients, tile, tiles.v, warp_row, tiles.d_out);
          for_each_element<kQueriesMet / 8>([&](int n, int i, int row, int column) {
            const bool seen = sees(s, span, first + column, begin + warp_row + row - span.k_begin);
            form_gradient(s, seen, statistics_of(a, s, span, head, first + column), scores[n][i], gradients[n][i]);
          });
          add_weighted<T>(d_key, gradients, tile, tiles.q, first_column);
          add_weighted<T>(d_value, scores, tile, tiles.d_out, first_column);
        }
    }
    const bool exists[2] = {own < end, own + 8 < end};
    put_rows<T>(a.dk, begin + warp_row, kv_head, exists, d_key, first_column, s.head_dim, a.accumulate_kv);
    put_rows<T>(a.dv, begin + warp_row, kv_head, exists, d_value, first_column, s.value_dim, a.accumulate_kv);
  }
}

template <class T, int kColumnWarps>
void start_backward(const Launch& where, const AttentionBackwardArrays& a, const AttentionSizes& s) {
  const HeadArray d_out{a.d_out, s.num_heads * s.value_dim, s.value_dim};
  const BackwardPacks packs{has_packs(a.q), has_packs(a.k), has_packs(a.v), has_packs(d_out)};
  const dim3 block(kRowWarps * kColumnWarps * kWarpSize);
  const auto bytes = [&](int queries, int keys) {
    return static_cast<size_t>(BackwardTiles(s, queries, keys).end) * sizeof(Row8);
  };
  launch_with(where, s.query_tiles * s.num_heads, block, bytes(kRows, kKeysMet), d_queries_mma_kernel<T, kColumnWarps>,
              a, s, packs);
  launch_with(where, s.key_tiles * s.num_kv_heads, block, bytes(kQueriesMet, kRows), d_keys_mma_kernel<T, kColumnWarps>,
              a, s, packs);
}

template <class T>
void start_backward_of(const Launch& where, const AttentionBackwardArrays& a, const AttentionSizes& s) {
  const int64_t columns = s.head_dim > s.value_dim ? s.head_dim : s.value_dim;
  columns > kColumnTiles * 8 ? start_backward<T, 2>(where, a, s) : start_backward<T, 1>(where, a, s);
}

}  // namespace

void attention_backward_mma(const Launch& where, const AttentionBackwardArrays& a, const AttentionSizes& s) {
  if (a.q.array.dtype == DType::bf16) return start_backward_of<bf16_t>(where, a, s);
  start_backward_of<f16_t>(where, a, s);
}

}  // namespace nought::cuda
