// What the kernels of attention share: sequences, tiles of queries, masks, scores.
#pragma once

#include <limits>

#include "nought/cuda/backend/attention.h"
#include "nought/cuda/backend/kernel.h"

namespace nought::cuda {

template <class T>
constexpr T kMinusInfinity = -std::numeric_limits<T>::infinity();

__device__ inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
__device__ inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
__device__ inline int64_t within(int64_t x, int64_t end) { return most(0, least(x, end)); }

__device__ inline SpanOnDevice span_of(const AttentionSizes& s, int64_t i) {
  if (s.spans != nullptr) return s.spans[i];
  return {i * s.q_length, s.q_length, i * s.k_length, s.k_length, s.k_length - s.q_length, 0};
}

/// Some queries of one sequence.
struct QueryTile {
  SpanOnDevice span;
  int64_t begin;  // the first query's number in its sequence
};

/// The last of them that begins with this tile or before it.
template <class Part>
__device__ inline int64_t last_before(const Part* parts, int64_t count, int64_t tile) {
  int64_t first = 0, end = count;
  while (end - first > 1) {
    const int64_t middle = (first + end) / 2;
    if (parts[middle].tiles <= tile) {
      first = middle;
    } else {
      end = middle;
    }
  }
  return first;
}

/// The tile of this number among those of all sequences.
__device__ inline QueryTile query_tile(const AttentionSizes& s, int64_t number) {
  if (s.spans == nullptr) {
    const int64_t each = (s.q_length + s.query_rows - 1) / s.query_rows;
    return {span_of(s, number / each), number % each * s.query_rows};
  }
  const SpanOnDevice span = s.spans[last_before(s.spans, s.sequences, number)];
  return {span, (number - span.tiles) * s.query_rows};
}

/// True if query i of the sequence sees key j; neither need exist.
__device__ inline bool sees(const AttentionSizes& s, const SpanOnDevice& span, int64_t i, int64_t j) {
  const int64_t position = span.first_position + i;
  return i < span.q_length && j >= 0 && j < span.k_length && (!s.causal || j <= position) &&
         (s.window == 0 || (j > position - s.window && (s.causal || j < position + s.window)));
}

struct Range {
  int64_t begin, end;
};
/// The keys that any of the queries [begin, end) sees lie in it.
__device__ inline Range keys_of(const AttentionSizes& s, const SpanOnDevice& span, int64_t begin, int64_t end) {
  const int64_t behind = s.causal ? 0 : s.window - 1;  // how far a query sees beyond itself
  return {s.window > 0 ? within(span.first_position + begin - s.window + 1, span.k_length) : 0,
          s.causal || s.window > 0 ? within(span.first_position + end + behind, span.k_length) : span.k_length};
}
/// The queries that see any of the keys [begin, end) lie in it.
__device__ inline Range queries_of(const AttentionSizes& s, const SpanOnDevice& span, int64_t begin, int64_t end) {
  const int64_t behind = s.causal ? 0 : s.window - 1;
  return {s.causal || s.window > 0 ? within(begin - behind - span.first_position, span.q_length) : 0,
          s.window > 0 ? within(end - 1 + s.window - span.first_position, span.q_length) : span.q_length};
}
/// Keys [begin, end) of all keys, and the sequences among which are those that have them. A sequence has all or none.
struct KeyTile {
  Range keys, sequences;
};

/// The tile of this number among those of all keys.
__device__ inline KeyTile key_tile(const AttentionSizes& s, int64_t number) {
  if (s.segments == nullptr) {
    const int64_t each = (s.k_length + s.key_rows - 1) / s.key_rows, sequence = number / each;
    const int64_t begin = sequence * s.k_length + number % each * s.key_rows;
    return {{begin, least(begin + s.key_rows, (sequence + 1) * s.k_length)}, {sequence, sequence + 1}};
  }
  const KeySegment& segment = s.segments[last_before(s.segments, s.num_segments, number)];
  const int64_t begin = segment.begin + (number - segment.tiles) * s.key_rows;
  return {{begin, least(begin + s.key_rows, segment.end)}, {0, s.sequences}};
}

__device__ inline int64_t statistic_at(const AttentionSizes& s, const SpanOnDevice& span, int64_t head, int64_t i) {
  return span.q_begin * s.num_heads + head * span.q_length + i;
}

/// A score, and its derivative by the product of query and key.
template <class Real>
struct Score {
  Real value, slope;
};
template <class Real>
__device__ inline Score<Real> score_of(const AttentionSizes& s, Real product) {
  const Real scale = static_cast<Real>(s.scale), plain = scale * product;
  if (s.softcap == 0) return {plain, scale};
  const Real cap = static_cast<Real>(s.softcap), t = tanh(plain / cap);
  return {cap * t, (1 - t * t) * scale};
}

/// The softmax of one query so far: the largest score, and the sum of exponentials beside it.
template <class Real>
struct Softmax {
  Real largest, total;
  /// Takes scores in, the largest of which is given: returns the factor of what was summed up before.
  __device__ Real grow(Real with) {
    const Real before = largest;
    if (with > largest) largest = with;
    const Real factor = before == kMinusInfinity<Real> ? Real{0} : exp(before - largest);
    total *= factor;
    return factor;
  }
  /// The exponential of a score that was taken in; a score of a key that is not seen is -infinity.
  __device__ Real weight(Real score) const {
    if (score == kMinusInfinity<Real>) return 0;
    return exp(score - (largest == kMinusInfinity<Real> ? Real{0} : largest));  // a NaN stays one
  }
  __device__ Real lse() const { return total == 0 ? kMinusInfinity<Real> : largest + log(total); }
};
template <class Real, class T>
__device__ inline Softmax<Real> start_softmax(const T* sinks, int64_t head) {
  if (sinks == nullptr) return {kMinusInfinity<Real>, 0};
  return {static_cast<Real>(sinks[head]), 1};
}

/// As launch() of blocks that have work of their own size, with dynamic shared memory.
template <class... Expected, class... Given>
void launch_with(const Launch& where, int64_t pieces, dim3 block, size_t shared_bytes, void (*kernel)(Expected...),
                 Given... arguments) {
  if (pieces <= 0) return;
  constexpr size_t kAlways = size_t{40} << 10;  // more must be asked for: 48 KiB with what kernels declare
  if (shared_bytes > kAlways)
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(pieces < where.max_tiles ? pieces : where.max_tiles));
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = where.stream;
  cudaLaunchKernelEx(&config, kernel, static_cast<Expected>(arguments)...);  // cudaGetLastError() has its failure
}

/// An element of an array that is f32 or has the dtype T. Sums become either.
template <class T, class Real>
__device__ inline void put(const Array& to, int64_t i, Real value, bool accumulate) {
  const auto write = [&](auto* x) {
    using E = std::remove_pointer_t<decltype(x)>;
    x[i] = static_cast<E>(accumulate ? static_cast<Real>(x[i]) + value : value);
  };
  if (to.dtype == dtype_of_v<T>) {
    write(static_cast<T*>(to.at));
  } else {
    write(static_cast<float*>(to.at));
  }
}

}  // namespace nought::cuda
