#include <vector>

#include "nought/kernels/check_products.h"
#include "nought/kernels/reference/reference.h"

namespace nought::reference {
namespace {

/// The head_dim elements of one head of one token.
template <class T>
T* at(const Heads& heads, int64_t token, int64_t head, int64_t head_dim) {
  return heads.base.data<T>() + heads.at(token, head, head_dim);
}

template <class Sum, class A, class B>
Sum dot(const A* a, const B* b, int64_t n) {
  Sum sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<Sum>(a[i]) * static_cast<Sum>(b[i]);
  return sum;
}

/// y += factor * x
template <class Sum, class T>
void add_scaled(Sum factor, const T* x, std::vector<Sum>& y) {
  for (size_t i = 0; i < y.size(); ++i) y[i] += factor * static_cast<Sum>(x[i]);
}

template <class Sum, class T>
void store(const std::vector<Sum>& x, T* y) {
  for (size_t i = 0; i < x.size(); ++i) y[i] = static_cast<T>(x[i]);
}

/// One query of one head: a row of scores, its softmax, and the weighted sum of the values.
template <class T>
void attend(const Attention& op, int64_t b, int64_t h, int64_t i) {
  using Sum = accumulator_t<T>;
  const AttentionShape& s = op.shape;
  const int64_t d = s.head_dim, kv_head = h / (s.num_heads / s.num_kv_heads), first_key = b * s.k_length;
  const Interval keys = visible_keys(s, i);
  const T* q = at<T>(op.q, b * s.q_length + i, h, d);

  std::vector<Sum> scores;
  Sum largest = -std::numeric_limits<Sum>::infinity();
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    scores.push_back(static_cast<Sum>(s.scale) * dot<Sum>(q, at<T>(op.k, first_key + j, kv_head, d), d));
    largest = std::max(largest, scores.back());
  }
  Sum total = 0;
  for (Sum& score : scores) total += score = std::exp(score - largest);
  std::vector<Sum> out(static_cast<size_t>(d));
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    const Sum probability = scores[static_cast<size_t>(j - keys.begin)] / total;
    add_scaled(probability, at<T>(op.v, first_key + j, kv_head, d), out);
  }
  store(out, op.out.data<T>() + ((b * s.q_length + i) * s.num_heads + h) * d);
  // A query that sees nothing yields 0 and log(0) = -infinity.
  op.lse.data<Sum>()[(b * s.num_heads + h) * s.q_length + i] = keys.empty() ? largest : largest + std::log(total);
}

/// Adds to dk and dv what one query of head h sends to the keys that it sees, and writes its dq.
template <class T>
void attend_backward(const AttentionBackward& op, int64_t b, int64_t h, int64_t i,
                     std::vector<std::vector<accumulator_t<T>>>& dk, std::vector<std::vector<accumulator_t<T>>>& dv) {
  using Sum = accumulator_t<T>;
  const AttentionShape& s = op.shape;
  const int64_t d = s.head_dim, kv_head = h / (s.num_heads / s.num_kv_heads), first_key = b * s.k_length;
  const int64_t query = b * s.q_length + i, row = (query * s.num_heads + h) * d;
  const T* q = at<T>(op.q, query, h, d);
  const T* d_out = op.d_out.data<T>() + row;
  const Sum lse = op.lse.data<Sum>()[(b * s.num_heads + h) * s.q_length + i];
  const Sum delta = dot<Sum>(d_out, op.out.data<T>() + row, d);

  std::vector<Sum> dq(static_cast<size_t>(d));
  const Interval keys = visible_keys(s, i);
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    const T* k = at<T>(op.k, first_key + j, kv_head, d);
    const T* v = at<T>(op.v, first_key + j, kv_head, d);
    const Sum probability = std::exp(static_cast<Sum>(s.scale) * dot<Sum>(q, k, d) - lse);
    const Sum d_score = probability * (dot<Sum>(d_out, v, d) - delta) * static_cast<Sum>(s.scale);
    add_scaled(probability, d_out, dv[static_cast<size_t>(j)]);
    add_scaled(d_score, q, dk[static_cast<size_t>(j)]);
    add_scaled(d_score, k, dq);
  }
  store(dq, at<T>(op.dq, query, h, d));
}

}  // namespace

void run(const Attention& op) {
  check(op);
  visit_float(op.out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t b = 0; b < op.shape.batch; ++b) {
      for (int64_t h = 0; h < op.shape.num_heads; ++h) {
        for (int64_t i = 0; i < op.shape.q_length; ++i) attend<T>(op, b, h, i);
      }
    }
  });
}

void run(const AttentionBackward& op) {
  check(op);
  const AttentionShape& s = op.shape;
  const int64_t group = s.num_heads / s.num_kv_heads;
  visit_float(op.out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Rows = std::vector<std::vector<accumulator_t<T>>>;
    const std::vector<accumulator_t<T>> zeros(static_cast<size_t>(s.head_dim));
    for (int64_t b = 0; b < s.batch; ++b) {
      for (int64_t kv_head = 0; kv_head < s.num_kv_heads; ++kv_head) {
        Rows dk(static_cast<size_t>(s.k_length), zeros), dv = dk;  // [k_length, head_dim]
        for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
          for (int64_t i = 0; i < s.q_length; ++i) attend_backward<T>(op, b, h, i, dk, dv);
        }
        for (int64_t j = 0; j < s.k_length; ++j) {
          store(dk[static_cast<size_t>(j)], at<T>(op.dk, b * s.k_length + j, kv_head, s.head_dim));
          store(dv[static_cast<size_t>(j)], at<T>(op.dv, b * s.k_length + j, kv_head, s.head_dim));
        }
      }
    }
  });
}

}  // namespace nought::reference
