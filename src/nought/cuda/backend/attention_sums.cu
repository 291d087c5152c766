// The sums of attention that need no scores: those of out * d_out, the gradients of sinks, and the merge of pieces.
#include "nought/cuda/backend/attention_tiles.h"

namespace nought::cuda {
namespace {

constexpr int kLanes = 16;  // a row of a merge has half of a warp
constexpr int kDeltaLanes = 8, kDeltaRows = kThreads / kDeltaLanes;

/// Eight lanes have a row, by packs.
template <class T>
__global__ void __launch_bounds__(kThreads)
    deltas_kernel(const T* out, const T* d_out, accumulator_t<T>* deltas, int64_t rows, int64_t n, bool aligned) {
  using Real = accumulator_t<T>;
  constexpr int kWidth = kPackOf<T>;
  const int lane = static_cast<int>(threadIdx.x) % kDeltaLanes;
  for (int64_t first = int64_t{blockIdx.x} * kDeltaRows; first < rows; first += int64_t{gridDim.x} * kDeltaRows) {
    const int64_t row = first + threadIdx.x / kDeltaLanes, end = row < rows ? n : 0;
    const T *const x = out + row * n, *const y = d_out + row * n;
    Real sum = 0;
    for (int64_t i = lane * kWidth; i < end; i += kDeltaLanes * kWidth) {
      if (i + kWidth <= end) {
        const Values<T, kWidth> a(x + i, aligned), b(y + i, aligned);
        for (int k = 0; k < kWidth; ++k) sum += a[k] * b[k];
      } else {
        for (int64_t k = i; k < end; ++k) sum += Real{x[k]} * Real{y[k]};
      }
    }
    for (int lanes = kDeltaLanes / 2; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(kAllLanes, sum, lanes);
    if (row < rows && lane == 0) deltas[row] = sum;
  }
}

/// d_sinks[h] [+]= the sum of -e^(sink - lse) delta over the queries, of which each thread has every 256th.
template <class T>
__global__ void __launch_bounds__(kThreads) d_sinks_kernel(AttentionBackwardArrays a, AttentionSizes s) {
  using Real = accumulator_t<T>;
  for (int64_t head = blockIdx.x; head < s.num_heads; head += gridDim.x) {
    const Real sink{a.sinks.as<const T>()[head]};
    Real sum = 0;
    for (int64_t b = 0; b < s.sequences; ++b) {
      const SpanOnDevice span = span_of(s, b);
      for (int64_t i = threadIdx.x; i < span.q_length; i += kThreads)
        sum -= exp(sink - a.lse.as<const Real>()[statistic_at(s, span, head, i)]) *
               a.delta.as<const Real>()[(span.q_begin + i) * s.num_heads + head];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) put<T>(a.d_sinks, head, sum, a.accumulate_sinks);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) merge_attention_kernel(MergeArrays a, AttentionSizes s) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  for (int64_t work = blockIdx.x; work < s.query_tiles * s.num_heads; work += gridDim.x) {
    const QueryTile at = query_tile(s, work / s.num_heads);
    const int64_t head = work % s.num_heads, i = at.begin + threadIdx.x / kLanes;
    const bool exists = i < at.span.q_length;
    const int64_t statistic = exists ? statistic_at(s, at.span, head, i) : 0;
    const T own = exists ? a.lse.as<T>()[statistic] : T{0};
    const T piece = exists ? a.piece_lse.as<const T>()[statistic] : kMinusInfinity<T>;
    __syncwarp();  // before the log of the sum is overwritten
    if (piece == kMinusInfinity<T>) continue;
    const T largest = piece > own ? piece : own;
    const T own_weight = exp(own - largest), piece_weight = exp(piece - largest), total = own_weight + piece_weight;
    const int64_t row = ((at.span.q_begin + i) * s.num_heads + head) * s.value_dim;
    T* const out = a.out.as<T>() + row;
    const T* const piece_out = a.piece_out.as<const T>() + row;
    for (int64_t e = lane; e < s.value_dim; e += kLanes) {
      const T mixed = piece_weight / total * piece_out[e];
      out[e] = own_weight == 0 ? mixed : own_weight / total * out[e] + mixed;
    }
    if (lane == 0) a.lse.as<T>()[statistic] = largest + log(total);
  }
}

}  // namespace

void attention_deltas(const Launch& where, const AttentionBackwardArrays& a, const AttentionSizes& s) {
  visit_float(a.q.array.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const int64_t rows = s.q_tokens * s.num_heads;
    const T *const out = a.out.as<const T>(), *const d_out = a.d_out.as<const T>();
    const bool aligned = s.value_dim % kPackOf<T> == 0 && are_aligned(out, d_out);
    launch(where, (rows + kDeltaRows - 1) / kDeltaRows, dim3(kThreads), deltas_kernel<T>, out, d_out,
           a.delta.as<accumulator_t<T>>(), rows, s.value_dim, aligned);
    if (a.d_sinks) launch(where, s.num_heads, dim3(kThreads), d_sinks_kernel<T>, a, s);
  });
}

void merge_attention(const Launch& where, const MergeArrays& a, const AttentionSizes& s) {
  const int64_t blocks = s.query_tiles * s.num_heads;
  if (a.out.dtype == DType::f64) return launch(where, blocks, dim3(kThreads), merge_attention_kernel<double>, a, s);
  launch(where, blocks, dim3(kThreads), merge_attention_kernel<float>, a, s);
}

}  // namespace nought::cuda
