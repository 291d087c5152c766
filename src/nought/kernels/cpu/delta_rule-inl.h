// A chunk of the gated delta rule as products of small matrices (arXiv 2406.06484, 2412.06464).
//
// With G the sums of g from the begin of a chunk, S the state there and D_ij = e^(G_i - G_j): the values that tokens
// add are u, where (1 + A) u = beta (v - e^G K S) and A_ij = beta_i (k_i . k_j) D_ij for j < i. Then out = e^G Q S + M
// u with M_ij = (q_i . k_j) D_ij for j <= i, and the next state is e^(G_n) S + K^T (e^(G_n - G) u). This file is
// compiled once per target.
#if defined(NOUGHT_KERNELS_CPU_DELTA_RULE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NOUGHT_KERNELS_CPU_DELTA_RULE_INL_H_
#undef NOUGHT_KERNELS_CPU_DELTA_RULE_INL_H_
#else
#define NOUGHT_KERNELS_CPU_DELTA_RULE_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "nought/kernels/cpu/math-inl.h"
#include "nought/kernels/cpu/scratch.h"
#include "nought/kernels/cpu/simd-inl.h"
#include "nought/kernels/ops/delta_rule.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

constexpr int64_t kChunk = 64;
/// Rows of matrices are padded to whole vectors of any target.
constexpr int64_t kPadding = 16;

/// Element (i, k) of a left factor is data[i * row + k * inner].
struct LeftFactor {
  const float* data;
  int64_t row, inner;
};
inline LeftFactor plain(const float* data, int64_t row) { return {data, row, 1}; }
inline LeftFactor transposed(const float* data, int64_t row) { return {data, 1, row}; }

/// Which elements of a left factor count: all, those with k <= i, those with k >= i.
enum class Part : uint8_t { all, lower, upper };

template <int kRows, int kVectors>
HWY_INLINE void multiply_tile(int64_t depth, LeftFactor a, const float* b, int64_t b_row, float* c, int64_t c_row,
                              bool adds) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<F32> sums[kRows][kVectors];
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kVectors; ++j) sums[i][j] = adds ? hn::LoadU(d, c + i * c_row + j * lanes) : hn::Zero(d);
  for (int64_t k = 0; k < depth; ++k) {
    hn::Vec<F32> right[kVectors];
    for (int j = 0; j < kVectors; ++j) right[j] = hn::LoadU(d, b + k * b_row + j * lanes);
    for (int i = 0; i < kRows; ++i) {
      const auto left = hn::Set(d, a.data[i * a.row + k * a.inner]);
      for (int j = 0; j < kVectors; ++j) sums[i][j] = hn::MulAdd(left, right[j], sums[i][j]);
    }
  }
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kVectors; ++j) hn::StoreU(sums[i][j], d, c + i * c_row + j * lanes);
}

template <int kRows>
HWY_INLINE void multiply_rows(int64_t columns, int64_t depth, LeftFactor a, const float* b, int64_t b_row, float* c,
                              int64_t c_row, bool adds) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32()));
  int64_t j = 0;
  for (; j + 2 * lanes <= columns; j += 2 * lanes) multiply_tile<kRows, 2>(depth, a, b + j, b_row, c + j, c_row, adds);
  for (; j < columns; j += lanes) multiply_tile<kRows, 1>(depth, a, b + j, b_row, c + j, c_row, adds);
}

/// c [+]= a b, of `rows` x `columns`, which are a multiple of kPadding.
HWY_NOINLINE inline void multiply(int64_t rows, int64_t columns, int64_t depth, LeftFactor a, const float* b,
                                  int64_t b_row, float* c, int64_t c_row, bool adds = false, Part part = Part::all) {
  constexpr int64_t kRows = 4;
  for (int64_t i = 0; i < rows; i += kRows) {
    const int64_t count = std::min(kRows, rows - i);
    const int64_t begin = part == Part::upper ? std::min(i, depth) : 0;
    const int64_t end = part == Part::lower ? std::min(i + count, depth) : depth;
    const LeftFactor left{a.data + i * a.row + begin * a.inner, a.row, a.inner};
    const float* const right = b + begin * b_row;
    float* const to = c + i * c_row;
    const auto run = [&](auto step) HWY_ATTR {
      for (int64_t r = 0; r < count; r += step.value)
        multiply_rows<step.value>(columns, end - begin, {left.data + r * a.row, a.row, a.inner}, right, b_row,
                                  to + r * c_row, c_row, adds);
    };
    count == kRows ? run(std::integral_constant<int, 4>{}) : run(std::integral_constant<int, 1>{});
  }
}

/// Solves (1 - b) x = x in place for n rows of x, b [n, n] with zeros from the diagonal on; or for its transpose.
HWY_NOINLINE inline void solve(int64_t n, int64_t columns, const float* b, int64_t b_row, float* x, int64_t x_row,
                               bool of_transpose) {
  constexpr int64_t kRows = 4;
  const int64_t blocks = ceil_div(n, kRows);
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t first = (of_transpose ? blocks - 1 - block : block) * kRows, last = std::min(first + kRows, n);
    if (of_transpose) {
      multiply(last - first, columns, n - last, transposed(b + last * b_row + first, b_row), x + last * x_row, x_row,
               x + first * x_row, x_row, /*adds=*/true);
      for (int64_t i = last - 1; i-- > first;)
        multiply(1, columns, last - 1 - i, transposed(b + (i + 1) * b_row + i, b_row), x + (i + 1) * x_row, x_row,
                 x + i * x_row, x_row, true);
    } else {
      multiply(last - first, columns, first, plain(b + first * b_row, b_row), x, x_row, x + first * x_row, x_row, true);
      for (int64_t i = first + 1; i < last; ++i)
        multiply(1, columns, i - first, plain(b + i * b_row + first, b_row), x + first * x_row, x_row, x + i * x_row,
                 x_row, true);
    }
  }
}

/// to[j, i] = from[i, j]; rows of `to` are filled up with zeros.
inline void transpose(int64_t rows, int64_t columns, const float* from, int64_t from_row, float* to, int64_t to_row) {
  for (int64_t j = 0; j < columns; ++j) {
    for (int64_t i = 0; i < rows; ++i) to[j * to_row + i] = from[i * from_row + j];
    std::fill(to + j * to_row + rows, to + (j + 1) * to_row, 0.0f);
  }
}

/// to [+]= factor * from.
HWY_INLINE void scale_row(int64_t n, const float* from, float factor, float* to, bool adds = false) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto by = hn::Set(d, factor);
  for (int64_t j = 0; j < n; j += lanes) {
    const auto value = hn::Mul(hn::LoadU(d, from + j), by);
    hn::StoreU(adds ? hn::Add(value, hn::LoadU(d, to + j)) : value, d, to + j);
  }
}

HWY_INLINE float dot_row(int64_t n, const float* a, const float* b) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum = hn::Zero(d);
  for (int64_t j = 0; j < n; j += lanes) sum = hn::MulAdd(hn::LoadU(d, a + j), hn::LoadU(d, b + j), sum);
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

/// Hands out matrices of one block of scratch memory.
class Arena {
 public:
  explicit Arena(float* begin) : next_(begin) {}
  float* matrix(int64_t rows, int64_t columns) {
    float* const begin = next_;
    next_ += rows * round_up(columns, kPadding);
    return begin;
  }

 private:
  float* next_;
};

/// What the value heads of a key head read of a chunk, and one of them at a time.
template <class T, class Op>
struct DeltaChunk {
  DeltaChunk(const Op& operation, int64_t head, Arena& arena)
      : op(operation),
        s(op.shape),
        key_head(head),
        kp(round_up(s.key_dim, kPadding)),
        vp(round_up(s.value_dim, kPadding)) {
    for (float** each : {&q, &k}) *each = arena.matrix(kChunk, kp);
    k_transposed = arena.matrix(s.key_dim, kChunk);
    for (float** each : {&keys_by_keys, &queries_by_keys, &decay, &within, &minus_a})
      *each = arena.matrix(kChunk, kChunk);
    for (float** each : {&v, &error, &u}) *each = arena.matrix(kChunk, vp);
  }
  static int64_t elements(const DeltaShape& shape) {
    const int64_t key = round_up(shape.key_dim, kPadding), value = round_up(shape.value_dim, kPadding);
    return kChunk * (2 * key + 3 * value + 5 * kChunk) + shape.key_dim * kChunk;
  }

  /// Queries and keys of tokens [begin, begin + count), of length 1, and their products.
  void load_keys(int64_t begin, int64_t count) {
    first = begin, n = count, np = round_up(count, kPadding);
    const float root = 1 / std::sqrt(static_cast<float>(s.key_dim));
    for (int64_t i = 0; i < n; ++i) {
      q_inverse[i] = load_unit(at(i, 0), root, q + i * kp);
      k_inverse[i] = load_unit(at(i, 1), 1, k + i * kp);
    }
    transpose(n, s.key_dim, k, kp, k_transposed, kChunk);
    multiply(n, np, s.key_dim, plain(k, kp), k_transposed, kChunk, keys_by_keys, kChunk);
    multiply(n, np, s.key_dim, plain(q, kp), k_transposed, kChunk, queries_by_keys, kChunk);
  }
  /// Values, decays and the matrices A and M of a value head.
  void load_head(int64_t value_head) {
    head = value_head;
    const T* const gates = op.ba.template data<T>();
    const auto bias = static_cast<float>(op.dt_bias.template data<T>()[head]);
    rate = -std::exp(static_cast<float>(op.a_log.template data<T>()[head]));
    float sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t gate = (first + i) * 2 * s.value_heads + head;
      beta[i] = 1 / (1 + std::exp(-static_cast<float>(gates[gate])));
      raw_a[i] = static_cast<float>(gates[gate + s.value_heads]) + bias;
      g[i] = rate * (std::max(raw_a[i], 0.0f) + std::log1p(std::exp(-std::abs(raw_a[i]))));
      sums[i] = sum += g[i];
      load(value_at(i), s.value_dim, v + i * vp, vp);
    }
    std::fill(sums + n, sums + kChunk, 0.0f);
    for (int64_t i = 0; i < n; ++i) to_end[i] = std::exp(sum - sums[i]), from_begin[i] = std::exp(sums[i]);
    whole = std::exp(sum);
    for (int64_t i = 0; i < n; ++i) weigh_row(i);
  }
  /// What tokens add to the state that the chunk begins with.
  void solve_from(const float* state) {
    multiply(n, vp, s.key_dim, plain(k, kp), state, vp, error, vp);
    for (int64_t i = 0; i < n; ++i) {
      scale_row(vp, error + i * vp, -from_begin[i], error + i * vp);
      scale_row(vp, v + i * vp, 1, error + i * vp, /*adds=*/true);
      scale_row(vp, error + i * vp, beta[i], u + i * vp);
    }
    solve(n, vp, minus_a, kChunk, u, vp, /*of_transpose=*/false);
  }
  /// `state` becomes that behind the chunk. room: [kChunk, vp].
  void advance(float* state, float* room) const {
    for (int64_t i = 0; i < n; ++i) scale_row(vp, u + i * vp, to_end[i], room + i * vp);
    scale_row(s.key_dim * vp, state, whole, state);
    multiply(s.key_dim, vp, n, transposed(k, kp), room, vp, state, vp, /*adds=*/true);
  }

  int64_t value_at(int64_t i) const { return (first + i) * s.width() + 2 * s.keys() + head * s.value_dim; }
  /// Where the queries (which = 0) or keys (1) of a token begin.
  int64_t at(int64_t i, int64_t which) const {
    return (first + i) * s.width() + which * s.keys() + key_head * s.key_dim;
  }

  const Op& op;
  const DeltaShape& s;
  int64_t key_head, kp, vp;
  int64_t first = 0, n = 0, np = 0, head = 0;
  float *q, *k, *k_transposed, *keys_by_keys, *queries_by_keys;
  float *v, *error, *u;             // error: v - e^G K S
  float *decay, *within, *minus_a;  // D, M and -A, with zeros where they have nothing
  float q_inverse[kChunk], k_inverse[kChunk];
  float beta[kChunk], raw_a[kChunk], g[kChunk], sums[kChunk], from_begin[kChunk], to_end[kChunk];
  float whole = 1, rate = 0;

 private:
  void load(int64_t from, int64_t count, float* to, int64_t padded) const {
    widen(op.qkv.template data<T>() + from, count, to);
    std::fill(to + count, to + padded, 0.0f);
  }
  /// Returns the inverse of the length.
  float load_unit(int64_t from, float factor, float* to) const {
    load(from, s.key_dim, to, kp);
    const float inverse = 1 / std::sqrt(dot_row(kp, to, to) + 1e-6f);
    scale_row(kp, to, factor * inverse, to);
    return inverse;
  }
  void weigh_row(int64_t i) {
    const F32 d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), row = i * kChunk;
    const auto own = hn::Set(d, sums[i]), minus_beta = hn::Set(d, -beta[i]);
    for (int64_t j = 0; j < np; j += lanes) {
      const auto by = exp(d, hn::Min(hn::Sub(own, hn::LoadU(d, sums + j)), hn::Zero(d)));
      hn::StoreU(by, d, decay + row + j);
      hn::StoreU(hn::Mul(by, hn::LoadU(d, queries_by_keys + row + j)), d, within + row + j);
      hn::StoreU(hn::Mul(hn::Mul(by, minus_beta), hn::LoadU(d, keys_by_keys + row + j)), d, minus_a + row + j);
    }
    for (float* each : {decay, within}) std::fill(each + row + i + 1, each + row + np, 0.0f);
    std::fill(minus_a + row + i, minus_a + row + np, 0.0f);
  }
};

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
