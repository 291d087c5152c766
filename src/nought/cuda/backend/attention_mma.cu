// Attention of bf16 and f16 on tensor cores: one block has 64 queries of a head, each of its warps 16 of them. Where
// values have more than 128 elements, a second set of warps has the columns behind them.
#include "nought/cuda/backend/attention_mma.h"

namespace nought::cuda {
namespace {

constexpr int kRowWarps = static_cast<int>(kMmaRows) / kWarpRows, kColumnTiles = 16;  // of eight columns each

/// Which operands can be loaded by packs.
struct Packs {
  bool q, k, v;
};

/// kKeys: of a tile that queries meet.
template <class T, int kColumnWarps, int kKeys>
__global__ void __launch_bounds__(kRowWarps* kColumnWarps* kWarpSize)
    attention_mma_kernel(AttentionArrays a, AttentionSizes s, Packs packs) {
  constexpr int kAll = kRowWarps * kColumnWarps * kWarpSize, kRows = static_cast<int>(kMmaRows), kTiles = kKeys / 8;
  NOUGHT_DYNAMIC_SHARED(Row8, tile);
  const TileRows q{0, static_cast<int>(s.head_dim)};
  const TileRows k{q.row(kRows), q.dim}, v{k.row(kKeys), static_cast<int>(s.value_dim)};
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize, lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp_row = warp % kRowWarps * kWarpRows, first_column = warp / kRowWarps * kColumnTiles * 8;
  for (int64_t work = blockIdx.x; work < s.query_tiles * s.num_heads; work += gridDim.x) {
    const QueryTile at = query_tile(s, work / s.num_heads);
    const SpanOnDevice& span = at.span;
    const int64_t head = work % s.num_heads, kv_head = head / (s.num_heads / s.num_kv_heads);
    const int64_t count = least(kRows, span.q_length - at.begin);
    __syncthreads();  // the tiles before have been read
    fetch8<T, kRows, kAll>(tile, q, head_of<T>(a.q, span.q_begin + at.begin, head), a.q.token_stride, count, packs.q);
    Softmax<float> softmax[2] = {start_softmax<float>(a.sinks.as<const T>(), head),
                                 start_softmax<float>(a.sinks.as<const T>(), head)};
    float sums[kColumnTiles][4] = {};
    const Range range = keys_of(s, span, at.begin, at.begin + count);
    for (int64_t first = range.begin; first < range.end; first += kKeys) {
      const int64_t key = span.k_begin + first, those = least(kKeys, range.end - first);
      __syncthreads();  // the keys before have been read
      fetch8<T, kKeys, kAll>(tile, k, head_of<T>(a.k, key, kv_head), a.k.token_stride, those, packs.k);
      fetch8<T, kKeys, kAll>(tile, v, head_of<T>(a.v, key, kv_head), a.v.token_stride, those, packs.v);
      __syncthreads();
      float scores[kTiles][4] = {};
      add_products<T>(scores, tile, q, warp_row, k);
      const bool all = sees(s, span, at.begin, first + kKeys - 1) && sees(s, span, at.begin + kRows - 1, first);
      float largest[2] = {kMinusInfinity<float>, kMinusInfinity<float>}, factor[2], total[2] = {};
      for_each_element<kTiles>([&](int n, int i, int row, int column) {
        float& score = scores[n][i];
        const bool seen = all || sees(s, span, at.begin + warp_row + row, first + column);
        score = seen ? score_of(s, score).value : kMinusInfinity<float>;
        if (score > largest[i / 2]) largest[i / 2] = score;
      });
      for (int half = 0; half < 2; ++half) factor[half] = softmax[half].grow(quad_largest(largest[half]));
      for_each_element<kTiles>([&](int n, int i, int /*row*/, int /*column*/) {
        scores[n][i] = softmax[i / 2].weight(scores[n][i]);
        total[i / 2] += scores[n][i];
      });
      for (int half = 0; half < 2; ++half) softmax[half].total += quad_sum(total[half]);
      for_each_element<kColumnTiles>([&](int n, int i, int /*row*/, int /*column*/) { sums[n][i] *= factor[i / 2]; });
      add_weighted<T>(sums, scores, tile, v, first_column);
    }
    for_each_element<kColumnTiles>([&](int n, int i, int row, int column) {
      const int64_t query = at.begin + warp_row + row, out = first_column + column;
      if (query >= span.q_length || out >= s.value_dim) return;
      const float sum = softmax[i / 2].total;
      put<T>(a.out, ((span.q_begin + query) * s.num_heads + head) * s.value_dim + out, sum == 0 ? 0 : sums[n][i] / sum,
             /*accumulate=*/false);
    });
    for (int half = 0; half < 2; ++half) {
      const int64_t query = at.begin + warp_row + lane / 4 + 8 * half;
      if (lane % 4 == 0 && first_column == 0 && query < span.q_length)
        a.lse.as<float>()[statistic_at(s, span, head, query)] = softmax[half].lse();
    }
  }
}

template <class T, int kColumnWarps, int kKeys>
void start_forward(const Launch& where, const AttentionArrays& a, const AttentionSizes& s) {
  const int rows = (static_cast<int>(kMmaRows) + kKeys) * pitch8_of(s.head_dim) + kKeys * pitch8_of(s.value_dim);
  launch_with(where, s.query_tiles * s.num_heads, dim3(kRowWarps * kColumnWarps * kWarpSize),
              static_cast<size_t>(rows) * sizeof(Row8), attention_mma_kernel<T, kColumnWarps, kKeys>, a, s,
              Packs{has_packs(a.q), has_packs(a.k), has_packs(a.v)});
}

template <class T>
void start_forward_of(const Launch& where, const AttentionArrays& a, const AttentionSizes& s) {
  // How keys are cut goes by the sizes of heads alone.
  if (s.value_dim > kColumnTiles * 8) return start_forward<T, 2, 32>(where, a, s);
  start_forward<T, 1, 64>(where, a, s);
}

}  // namespace

void attention_mma(const Launch& where, const AttentionArrays& a, const AttentionSizes& s) {
  if (a.q.array.dtype == DType::bf16) return start_forward_of<bf16_t>(where, a, s);
  start_forward_of<f16_t>(where, a, s);
}

}  // namespace nought::cuda
