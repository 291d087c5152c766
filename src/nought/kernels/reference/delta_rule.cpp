// The gated delta rule one step at a time.
#include <cmath>
#include <vector>

#include "nought/kernels/check.h"
#include "nought/kernels/reference/loops.h"

namespace nought::reference {
namespace {

template <class Sum>
using Vector = std::vector<Sum>;

template <class Sum>
Sum inner(const Vector<Sum>& a, const Vector<Sum>& b) {
  Sum sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// A state: [key_dim, value_dim].
template <class Sum>
struct Matrix {
  Matrix(int64_t row_count, int64_t column_count)
      : rows(static_cast<size_t>(row_count)), columns(static_cast<size_t>(column_count)), values(rows * columns) {}
  Sum& at(size_t i, size_t j) { return values[i * columns + j]; }
  Sum at(size_t i, size_t j) const { return values[i * columns + j]; }
  void scale(Sum factor) {
    for (Sum& value : values) value *= factor;
  }
  void add_outer(const Vector<Sum>& a, const Vector<Sum>& b) {
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < columns; ++j) at(i, j) += a[i] * b[j];
  }
  Vector<Sum> times(const Vector<Sum>& x) const {
    Vector<Sum> y(rows, Sum{0});
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < columns; ++j) y[i] += at(i, j) * x[j];
    return y;
  }
  Vector<Sum> transposed_times(const Vector<Sum>& x) const {
    Vector<Sum> y(columns, Sum{0});
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < columns; ++j) y[j] += at(i, j) * x[i];
    return y;
  }

  size_t rows, columns;
  Vector<Sum> values;
};

/// What a value head reads of a token.
template <class T>
struct DeltaToken {
  using Sum = accumulator_t<T>;

  template <class Op>
  DeltaToken(const Op& op, int64_t token, int64_t head) {
    const DeltaShape& s = op.shape;
    const int64_t key_head = head / s.heads_of_key();
    q_at = token * s.width() + key_head * s.key_dim, k_at = q_at + s.keys();
    v_at = token * s.width() + 2 * s.keys() + head * s.value_dim;
    b_at = token * 2 * s.value_heads + head, a_at = b_at + s.value_heads;
    const auto read = [&](int64_t at, int64_t count) {
      const T* from = op.qkv.template data<T>() + at;
      return Vector<Sum>(from, from + count);
    };
    raw_q = read(q_at, s.key_dim), raw_k = read(k_at, s.key_dim), v = read(v_at, s.value_dim);
    q = unit(raw_q, 1 / std::sqrt(static_cast<Sum>(s.key_dim))), k = unit(raw_k, 1);
    beta = 1 / (1 + std::exp(-Sum{op.ba.template data<T>()[b_at]}));
    raw_a = Sum{op.ba.template data<T>()[a_at]} + Sum{op.dt_bias.template data<T>()[head]};
    rate = -std::exp(Sum{op.a_log.template data<T>()[head]});
    g = rate * (std::max(raw_a, Sum{0}) + std::log1p(std::exp(-std::abs(raw_a))));
  }
  static Sum inverse_length(const Vector<Sum>& x) { return 1 / std::sqrt(inner(x, x) + static_cast<Sum>(1e-6)); }
  static Vector<Sum> unit(Vector<Sum> x, Sum factor) {
    factor *= inverse_length(x);
    for (Sum& each : x) each *= factor;
    return x;
  }
  /// The gradient of x from that of unit(x, factor).
  static Vector<Sum> unit_backward(const Vector<Sum>& x, const Vector<Sum>& d, Sum factor) {
    const Sum r = inverse_length(x), along = inner(x, d) * r * r;
    Vector<Sum> dx(x.size());
    for (size_t i = 0; i < x.size(); ++i) dx[i] = factor * r * (d[i] - x[i] * along);
    return dx;
  }
  /// Decays the state, and returns how far v is from what it has for k.
  Vector<Sum> error(Matrix<Sum>& state) const {
    state.scale(std::exp(g));
    Vector<Sum> left = state.transposed_times(k);
    for (size_t j = 0; j < left.size(); ++j) left[j] = v[j] - left[j];
    return left;
  }
  Vector<Sum> scaled(Vector<Sum> x, Sum factor) const {
    for (Sum& each : x) each *= factor;
    return x;
  }

  int64_t q_at, k_at, v_at, b_at, a_at;
  Vector<Sum> raw_q, raw_k, q, k, v;
  Sum beta, raw_a, rate, g;
};

}  // namespace

void run(const DeltaRule& op) {
  check(op);
  visit_float(op.qkv.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Sum = accumulator_t<T>;
    const DeltaShape& s = op.shape;
    for (const StateSpan& span : op.spans)
      for (int64_t head = 0; head < s.value_heads; ++head) {
        Matrix<Sum> state(s.key_dim, s.value_dim);
        Sum* const kept =
            op.states ? op.states.data<Sum>() + (span.state * s.value_heads + head) * s.key_dim * s.value_dim : nullptr;
        if (span.continues) std::copy(kept, kept + s.key_dim * s.value_dim, state.values.begin());
        for (int64_t t = span.begin; t < span.begin + span.length; ++t) {
          const DeltaToken<T> token(op, t, head);
          state.add_outer(token.k, token.scaled(token.error(state), token.beta));
          const Vector<Sum> out = state.transposed_times(token.q);
          T* const to = op.out.data<T>() + t * s.values() + head * s.value_dim;
          for (size_t j = 0; j < out.size(); ++j) to[j] = rounded<T>(out[j]);
        }
        if (kept != nullptr) std::copy(state.values.begin(), state.values.end(), kept);
      }
  });
}

namespace {

/// The gradients of one value head over a span, added to those of all: [tokens, width()], [tokens, 2 value_heads].
template <class T>
struct DeltaBackward {
  using Sum = accumulator_t<T>;

  void run(const StateSpan& span, int64_t head) {
    const DeltaShape& s = op.shape;
    std::vector<Matrix<Sum>> before{Matrix<Sum>(s.key_dim, s.value_dim)};
    for (int64_t t = span.begin; t < span.begin + span.length; ++t) {
      const DeltaToken<T> token(op, t, head);
      before.push_back(before.back());
      before.back().add_outer(token.k, token.scaled(token.error(before.back()), token.beta));
    }
    Matrix<Sum> d_state(s.key_dim, s.value_dim);
    for (int64_t t = span.begin + span.length; t-- > span.begin;) {
      before.pop_back();
      step(t, head, before.back(), d_state);
    }
  }
  /// `state`: before the token. d_state: the gradient behind it, which becomes that before it.
  void step(int64_t t, int64_t head, Matrix<Sum> state, Matrix<Sum>& d_state) {
    const DeltaShape& s = op.shape;
    const DeltaToken<T> token(op, t, head);
    const T* given = op.d_out.template data<T>() + t * s.values() + head * s.value_dim;
    const Vector<Sum> d_out(given, given + s.value_dim);
    const Vector<Sum> error = token.error(state);
    const Vector<Sum> added = token.scaled(error, token.beta);
    Matrix<Sum> after = state;
    after.add_outer(token.k, added);
    const Vector<Sum> dq = after.times(d_out);
    d_state.add_outer(token.q, d_out);
    Vector<Sum> dk = d_state.times(added);
    const Vector<Sum> d_added = d_state.transposed_times(token.k);
    const Vector<Sum> dv = token.scaled(d_added, token.beta), minus = token.scaled(dv, Sum{-1});
    d_state.add_outer(token.k, minus);
    const Vector<Sum> more = state.times(minus);
    for (size_t i = 0; i < dk.size(); ++i) dk[i] += more[i];
    const Sum dg = inner(d_state.values, state.values);
    d_state.scale(std::exp(token.g));
    const Sum inverse_root = 1 / std::sqrt(static_cast<Sum>(s.key_dim));
    add(d_qkv, token.q_at, DeltaToken<T>::unit_backward(token.raw_q, dq, inverse_root));
    add(d_qkv, token.k_at, DeltaToken<T>::unit_backward(token.raw_k, dk, 1));
    add(d_qkv, token.v_at, dv);
    d_ba[static_cast<size_t>(token.b_at)] += inner(d_added, error) * token.beta * (1 - token.beta);
    const Sum da = dg * token.rate / (1 + std::exp(-token.raw_a));
    d_ba[static_cast<size_t>(token.a_at)] += da;
    d_a_log[static_cast<size_t>(head)] += dg * token.g;
    d_dt_bias[static_cast<size_t>(head)] += da;
  }
  static void add(Vector<Sum>& to, int64_t at, const Vector<Sum>& from) {
    for (size_t i = 0; i < from.size(); ++i) to[static_cast<size_t>(at) + i] += from[i];
  }

  const DeltaRuleBackward& op;
  Vector<Sum> d_qkv, d_ba, d_a_log, d_dt_bias;
};

template <class D, class Sum>
void put_all(const Vector<Sum>& from, const Tensor& to, bool accumulate) {
  for (size_t i = 0; i < from.size(); ++i) {
    D& element = to.data<D>()[i];
    element = rounded<D>(accumulate ? static_cast<Sum>(element) + from[i] : from[i]);
  }
}

}  // namespace

void run(const DeltaRuleBackward& op) {
  check(op);
  visit_floats(op.qkv.dtype(), op.d_a_log.dtype(), [&](auto tag, auto gradient) {
    using T = typename decltype(tag)::type;
    using D = typename decltype(gradient)::type;
    using Sum = accumulator_t<T>;
    const auto zeros = [](const Tensor& like) { return Vector<Sum>(static_cast<size_t>(like.numel()), Sum{0}); };
    DeltaBackward<T> all{op, zeros(op.qkv), zeros(op.ba), zeros(op.a_log), zeros(op.dt_bias)};
    for (const StateSpan& span : op.spans)
      for (int64_t head = 0; head < op.shape.value_heads; ++head) all.run(span, head);
    put_all<T>(all.d_qkv, op.d_qkv, false);
    put_all<T>(all.d_ba, op.d_ba, false);
    put_all<D>(all.d_a_log, op.d_a_log, op.accumulate_weight);
    put_all<D>(all.d_dt_bias, op.d_dt_bias, op.accumulate_weight);
  });
}

}  // namespace nought::reference
