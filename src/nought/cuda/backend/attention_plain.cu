// Attention by multiplications and additions, for f32 and f64.
//
// 256 threads are 16 rows of 16. A row is a query (dk and dv: a key), and lane l of it has the columns l, l + 16, ...
// of that row's sums. Rows and what they meet lie in shared memory.
#include "nought/cuda/backend/attention_tiles.h"

namespace nought::cuda {
namespace {

constexpr int kRows = static_cast<int>(kPlainRows), kLanesOfRow = kThreads / kRows;
constexpr int kKeys = 32, kKeysEach = kKeys / kLanesOfRow;  // of a tile that queries meet
constexpr int kColumns = static_cast<int>(kMostHeadDim) / kLanesOfRow;

/// Elements from one row of shared memory to the next: odd, so that a column's elements lie in different banks.
__host__ __device__ inline int pitch_of(int64_t dim) { return static_cast<int>(dim) | 1; }

template <class Real>
__device__ inline Real sum_of_row(Real value) {
  for (int lanes = kLanesOfRow / 2; lanes > 0; lanes /= 2) value += __shfl_xor_sync(kAllLanes, value, lanes);
  return value;
}
template <class Real>
__device__ inline Real largest_of_row(Real value) {
  for (int lanes = kLanesOfRow / 2; lanes > 0; lanes /= 2) {
    const Real other = __shfl_xor_sync(kAllLanes, value, lanes);
    if (other > value) value = other;
  }
  return value;
}

/// tile[r][i] = from[r * stride + i] for rows [0, rows), and 0 up to `capacity`.
template <class T, class Tile>
__device__ void fetch(const Tile& tile, int at, const T* from, int64_t stride, int64_t rows, int capacity, int dim) {
  using Real = accumulator_t<T>;
  const int pitch = pitch_of(dim);
  for (int e = static_cast<int>(threadIdx.x); e < capacity * dim; e += kThreads) {
    const int row = e / dim, i = e % dim;
    tile[at + row * pitch + i] = row < rows ? Real{from[row * stride + i]} : Real{0};
  }
}

template <class Real, class Tile>
__device__ Real product_of(const Tile& tile, int a, int b, int dim) {
  Real sum = 0;
  for (int i = 0; i < dim; ++i) sum += Real{tile[a + i]} * Real{tile[b + i]};
  return sum;
}

/// sums[c] += sum over r of weights[r] * rows[r][lane + 16 c].
template <class Real, class Tile>
__device__ void add_rows(Real* sums, const Tile& tile, int weights, int rows, int count, int dim) {
  const int lane = static_cast<int>(threadIdx.x) % kLanesOfRow, pitch = pitch_of(dim);
  for (int r = 0; r < count; ++r) {
    const Real weight = tile[weights + r];
    NOUGHT_UNROLL
    for (int c = 0; c < kColumns; ++c)
      if (lane + c * kLanesOfRow < dim) sums[c] += weight * Real{tile[rows + r * pitch + lane + c * kLanesOfRow]};
  }
}

template <class T>
__device__ const T* row_of(const HeadArray& heads, int64_t token, int64_t head) {
  return heads.array.as<const T>() + token * heads.token_stride + head * heads.head_stride;
}

template <class T, class Real>
__device__ void put_row(const HeadArray& heads, int64_t token, int64_t head, const Real* sums, int dim,
                        bool accumulate) {
  const int lane = static_cast<int>(threadIdx.x) % kLanesOfRow;
  const int64_t first = token * heads.token_stride + head * heads.head_stride;
  NOUGHT_UNROLL
  for (int c = 0; c < kColumns; ++c)
    if (lane + c * kLanesOfRow < dim) put<T>(heads.array, first + lane + c * kLanesOfRow, sums[c], accumulate);
}

template <class T>
__global__ void __launch_bounds__(kThreads) attention_kernel(AttentionArrays a, AttentionSizes s) {
  using Real = accumulator_t<T>;
  NOUGHT_DYNAMIC_SHARED(Real, tile);
  const int dim = static_cast<int>(s.head_dim), value_dim = static_cast<int>(s.value_dim);
  const int queries = 0, keys = kRows * pitch_of(dim), values = keys + kKeys * pitch_of(dim);
  const int row = static_cast<int>(threadIdx.x) / kLanesOfRow, lane = static_cast<int>(threadIdx.x) % kLanesOfRow;
  const int weights = values + kKeys * pitch_of(value_dim) + row * kKeys;  // of this row
  for (int64_t work = blockIdx.x; work < s.query_tiles * s.num_heads; work += gridDim.x) {
    const QueryTile at = query_tile(s, work / s.num_heads);
    const SpanOnDevice& span = at.span;
    const int64_t head = work % s.num_heads, kv_head = head / (s.num_heads / s.num_kv_heads), i = at.begin + row;
    const int64_t count = least(kRows, span.q_length - at.begin);
    __syncthreads();  // the tiles before have been read
    fetch(tile, queries, row_of<T>(a.q, span.q_begin + at.begin, head), a.q.token_stride, count, kRows, dim);
    Softmax<Real> softmax = start_softmax<Real>(a.sinks.as<const T>(), head);
    Real sums[kColumns] = {};
    const Range range = keys_of(s, span, at.begin, at.begin + count);
    for (int64_t first = range.begin; first < range.end; first += kKeys) {
      const int64_t key = span.k_begin + first, those = least(kKeys, range.end - first);
      __syncthreads();  // the keys before have been read
      fetch(tile, keys, row_of<T>(a.k, key, kv_head), a.k.token_stride, those, kKeys, dim);
      fetch(tile, values, row_of<T>(a.v, key, kv_head), a.v.token_stride, those, kKeys, value_dim);
      __syncthreads();
      Real scores[kKeysEach], largest = kMinusInfinity<Real>;
      for (int n = 0; n < kKeysEach; ++n) {
        const int j = lane + n * kLanesOfRow;
        scores[n] = kMinusInfinity<Real>;
        if (!sees(s, span, i, first + j)) continue;
        const Real product = product_of<Real>(tile, queries + row * pitch_of(dim), keys + j * pitch_of(dim), dim);
        scores[n] = score_of(s, product).value;
        if (scores[n] > largest) largest = scores[n];
      }
      const Real factor = softmax.grow(largest_of_row(largest));
      Real total = 0;
      for (int n = 0; n < kKeysEach; ++n) {
        const Real weight = softmax.weight(scores[n]);
        tile[weights + lane + n * kLanesOfRow] = weight;
        total += weight;
      }
      softmax.total += sum_of_row(total);
      __syncwarp();  // a row is half of a warp
      for (Real& sum : sums) sum *= factor;
      add_rows(sums, tile, weights, values, kKeys, value_dim);
    }
    if (i >= span.q_length) continue;
    for (Real& sum : sums) sum = softmax.total == 0 ? Real{0} : sum / softmax.total;
    const HeadArray out{a.out, s.num_heads * s.value_dim, s.value_dim};
    put_row<T>(out, span.q_begin + i, head, sums, value_dim, /*accumulate=*/false);
    if (lane == 0) a.lse.as<Real>()[statistic_at(s, span, head, i)] = softmax.lse();
  }
}

/// The probability of a pair of query and key, and the gradient by their product.
template <class Real>
struct Pair {
  Real weight, gradient;
};
template <class T, class Tile>
__device__ Pair<accumulator_t<T>> pair_of(const AttentionBackwardArrays& a, const AttentionSizes& s,
                                          const SpanOnDevice& span, int64_t head, int64_t i, const Tile& tile, int q,
                                          int k, int d_out, int v) {
  using Real = accumulator_t<T>;
  const auto [value, slope] = score_of(s, product_of<Real>(tile, q, k, static_cast<int>(s.head_dim)));
  const Real weight = exp(value - a.lse.as<const Real>()[statistic_at(s, span, head, i)]);
  const Real delta = a.delta.as<const Real>()[(span.q_begin + i) * s.num_heads + head];
  return {weight, weight * (product_of<Real>(tile, d_out, v, static_cast<int>(s.value_dim)) - delta) * slope};
}

/// Where rows of queries, of keys, of d_out and of values lie in shared memory, kRows of each, and the weights of each
/// row behind them.
struct Places {
  int q, k, d_out, v, weights;
  __host__ __device__ explicit Places(const AttentionSizes& s)
      : q(0),
        k(kRows * pitch_of(s.head_dim)),
        d_out(2 * k),
        v(d_out + kRows * pitch_of(s.value_dim)),
        weights(v + kRows * pitch_of(s.value_dim)) {}
  __host__ __device__ int elements() const { return weights + 2 * kRows * kRows; }
};

template <class T>
__global__ void __launch_bounds__(kThreads) d_queries_kernel(AttentionBackwardArrays a, AttentionSizes s) {
  using Real = accumulator_t<T>;
  NOUGHT_DYNAMIC_SHARED(Real, tile);
  const Places place(s);
  const int dim = static_cast<int>(s.head_dim), value_dim = static_cast<int>(s.value_dim);
  const int row = static_cast<int>(threadIdx.x) / kLanesOfRow, lane = static_cast<int>(threadIdx.x) % kLanesOfRow;
  const int weights = place.weights + row * kRows;
  const int64_t out_stride = s.num_heads * s.value_dim;
  for (int64_t work = blockIdx.x; work < s.query_tiles * s.num_heads; work += gridDim.x) {
    const QueryTile at = query_tile(s, work / s.num_heads);
    const SpanOnDevice& span = at.span;
    const int64_t head = work % s.num_heads, kv_head = head / (s.num_heads / s.num_kv_heads), i = at.begin + row;
    const int64_t count = least(kRows, span.q_length - at.begin), token = span.q_begin + at.begin;
    __syncthreads();  // the tiles before have been read
    fetch(tile, place.q, row_of<T>(a.q, token, head), a.q.token_stride, count, kRows, dim);
    fetch(tile, place.d_out, a.d_out.as<const T>() + token * out_stride + head * s.value_dim, out_stride, count, kRows,
          value_dim);
    Real sums[kColumns] = {};
    const Range range = keys_of(s, span, at.begin, at.begin + count);
    for (int64_t first = range.begin; first < range.end; first += kRows) {
      const int64_t key = span.k_begin + first, those = least(kRows, range.end - first);
      __syncthreads();  // the keys before have been read
      fetch(tile, place.k, row_of<T>(a.k, key, kv_head), a.k.token_stride, those, kRows, dim);
      fetch(tile, place.v, row_of<T>(a.v, key, kv_head), a.v.token_stride, those, kRows, value_dim);
      __syncthreads();
      Real gradient = 0;
      if (sees(s, span, i, first + lane))
        gradient = pair_of<T>(a, s, span, head, i, tile, place.q + row * pitch_of(dim), place.k + lane * pitch_of(dim),
                              place.d_out + row * pitch_of(value_dim), place.v + lane * pitch_of(value_dim))
                       .gradient;
      tile[weights + lane] = gradient;
      __syncwarp();  // a row is half of a warp
      add_rows(sums, tile, weights, place.k, kRows, dim);
    }
    if (i < span.q_length) put_row<T>(a.dq, span.q_begin + i, head, sums, dim, a.accumulate_q);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) d_keys_kernel(AttentionBackwardArrays a, AttentionSizes s) {
  using Real = accumulator_t<T>;
  NOUGHT_DYNAMIC_SHARED(Real, tile);
  const Places place(s);
  const int dim = static_cast<int>(s.head_dim), value_dim = static_cast<int>(s.value_dim);
  const int row = static_cast<int>(threadIdx.x) / kLanesOfRow, lane = static_cast<int>(threadIdx.x) % kLanesOfRow;
  const int gradients = place.weights + row * kRows, weights = gradients + kRows * kRows;
  const int64_t out_stride = s.num_heads * s.value_dim, group = s.num_heads / s.num_kv_heads;
  for (int64_t work = blockIdx.x; work < s.key_tiles * s.num_kv_heads; work += gridDim.x) {
    const KeyTile at = key_tile(s, work / s.num_kv_heads);
    const int64_t kv_head = work % s.num_kv_heads, begin = at.keys.begin, end = at.keys.end, key = begin + row;
    __syncthreads();  // the tiles before have been read
    fetch(tile, place.k, row_of<T>(a.k, begin, kv_head), a.k.token_stride, end - begin, kRows, dim);
    fetch(tile, place.v, row_of<T>(a.v, begin, kv_head), a.v.token_stride, end - begin, kRows, value_dim);
    Real d_key[kColumns] = {}, d_value[kColumns] = {};
    for (int64_t b = at.sequences.begin; b < at.sequences.end; ++b) {
      const SpanOnDevice span = span_of(s, b);
      if (begin < span.k_begin || end > span.k_begin + span.k_length) continue;
      const Range range = queries_of(s, span, begin - span.k_begin, end - span.k_begin);
      for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
        for (int64_t first = range.begin / kRows * kRows; first < range.end; first += kRows) {
          const int64_t token = span.q_begin + first, those = least(kRows, span.q_length - first), i = first + lane;
          __syncthreads();  // the queries before have been read
          fetch(tile, place.q, row_of<T>(a.q, token, head), a.q.token_stride, those, kRows, dim);
          fetch(tile, place.d_out, a.d_out.as<const T>() + token * out_stride + head * s.value_dim, out_stride, those,
                kRows, value_dim);
          __syncthreads();
          Pair<Real> pair{};
          if (sees(s, span, i, key - span.k_begin))
            pair = pair_of<T>(a, s, span, head, i, tile, place.q + lane * pitch_of(dim), place.k + row * pitch_of(dim),
                              place.d_out + lane * pitch_of(value_dim), place.v + row * pitch_of(value_dim));
          tile[gradients + lane] = pair.gradient;
          tile[weights + lane] = pair.weight;
          __syncwarp();  // a row is half of a warp
          add_rows(d_key, tile, gradients, place.q, kRows, dim);
          add_rows(d_value, tile, weights, place.d_out, kRows, value_dim);
        }
    }
    if (key >= end) continue;
    put_row<T>(a.dk, key, kv_head, d_key, dim, a.accumulate_kv);
    put_row<T>(a.dv, key, kv_head, d_value, value_dim, a.accumulate_kv);
  }
}

/// What is narrower runs on tensor cores.
template <class F>
void visit_wide(DType dtype, const F& f) {
  dtype == DType::f64 ? f(TypeTag<double>{}) : f(TypeTag<float>{});
}

}  // namespace

void attention_plain(const Launch& where, const AttentionArrays& a, const AttentionSizes& s) {
  const int elements = (kRows + kKeys) * pitch_of(s.head_dim) + kKeys * pitch_of(s.value_dim) + kRows * kKeys;
  visit_wide(a.q.array.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch_with(where, s.query_tiles * s.num_heads, dim3(kThreads), elements * sizeof(accumulator_t<T>),
                attention_kernel<T>, a, s);
  });
}

void attention_backward_plain(const Launch& where, const AttentionBackwardArrays& a, const AttentionSizes& s) {
  visit_wide(a.q.array.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto bytes = static_cast<size_t>(Places(s).elements()) * sizeof(accumulator_t<T>);
    launch_with(where, s.query_tiles * s.num_heads, dim3(kThreads), bytes, d_queries_kernel<T>, a, s);
    launch_with(where, s.key_tiles * s.num_kv_heads, dim3(kThreads), bytes, d_keys_kernel<T>, a, s);
  });
}

}  // namespace nought::cuda
