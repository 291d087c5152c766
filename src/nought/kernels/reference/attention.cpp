#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "nought/kernels/check.h"
#include "nought/kernels/head_codes.h"
#include "nought/kernels/reference/loops.h"

namespace nought::reference {
namespace {

/// The head_dim elements of one head of one token.
template <class T>
T* at(const Heads& heads, int64_t token, int64_t head, int64_t head_dim) {
  return head_elements<T>(heads.base) + heads.at(token, head, head_dim);
}

/// The scale of the codes of one head of one token; 1 of what is no code.
float scale_at(const Tensor& scales, int64_t token, int64_t head) {
  return scales ? scales.data<float>()[head * scales.dim(1) + token] : 1.0f;
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
void store(const std::vector<Sum>& x, T* y, bool accumulate = false) {
  for (size_t i = 0; i < x.size(); ++i) y[i] = rounded<T>(accumulate ? static_cast<Sum>(y[i]) + x[i] : x[i]);
}

/// One head of a token [+]= x. The heads may be wider than what they are computed from.
template <class Sum>
void store(const std::vector<Sum>& x, const Heads& heads, int64_t token, int64_t head, bool accumulate) {
  visit_float(heads.base.dtype(), [&](auto tag) {
    store(x, at<typename decltype(tag)::type>(heads, token, head, std::ssize(x)), accumulate);
  });
}

/// A score before the mask, and its derivative by the plain score.
template <class Sum>
struct Score {
  Sum value, slope;
};

template <class Sum, class T, class K>
Score<Sum> score(const AttentionShape& s, const T* q, const K* k, Sum of_codes = 1) {
  const Sum plain = static_cast<Sum>(s.scale) * (of_codes * dot<Sum>(q, k, s.head_dim));
  if (s.softcap == 0) return {plain, 1};
  const Sum t = std::tanh(plain / static_cast<Sum>(s.softcap));
  return {static_cast<Sum>(s.softcap) * t, 1 - t * t};
}

/// A query as keys of K meet it: as it is.
template <class T, class K>
struct Query {
  Query(const T* query, int64_t /*count*/) : elements(query) {}
  const T* data() const { return elements; }
  const T* elements;
  float scale = 1;
};
/// As codes, where keys are whole numbers.
template <class T>
struct Query<T, int8_t> {
  Query(const T* query, int64_t count)
      : codes(static_cast<size_t>(count)), scale(encode_head(query, count, codes.data())) {}
  const int16_t* data() const { return codes.data(); }
  std::vector<int16_t> codes;
  float scale;
};

/// One query of one head: a row of scores, its softmax, and the weighted sum of the values. K: of keys and values.
template <class T, class K>
void attend(const Attention& op, const AttentionSpan& span, int64_t h, int64_t i) {
  using Sum = accumulator_t<T>;
  const AttentionShape& s = op.shape;
  const int64_t d = s.head_dim, v_dim = s.value_dim(), kv_head = h / (s.num_heads / s.num_kv_heads);
  const int64_t first_key = span.k_begin;
  const Interval keys = visible_keys(s, span, i);
  const T* q = at<T>(op.q, span.q_begin + i, h, d);

  std::vector<Sum> scores;
  const Sum sink = op.sinks ? static_cast<Sum>(op.sinks.data<T>()[h]) : -std::numeric_limits<Sum>::infinity();
  Sum largest = sink;
  const Query<T, K> query(q, d);
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    const auto scale = static_cast<Sum>(scale_at(op.k_scales, first_key + j, kv_head));
    scores.push_back(score<Sum>(s, query.data(), at<K>(op.k, first_key + j, kv_head, d), scale * query.scale).value);
    largest = std::max(largest, scores.back());
  }
  Sum total = op.sinks ? std::exp(sink - largest) : Sum{0};
  for (Sum& score : scores) total += score = std::exp(score - largest);
  std::vector<Sum> out(static_cast<size_t>(v_dim));
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    const Sum probability = scores[static_cast<size_t>(j - keys.begin)] / total;
    add_scaled(probability * static_cast<Sum>(scale_at(op.v_scales, first_key + j, kv_head)),
               at<K>(op.v, first_key + j, kv_head, v_dim), out);
  }
  store(out, {op.out, 0, s.num_heads * v_dim}, span.q_begin + i, h, false);
  // A query that sees nothing yields 0 and log(0) = -infinity, or the sink.
  op.lse.data<Sum>()[span.q_begin * s.num_heads + h * span.q_length + i] =
      keys.empty() ? largest : largest + std::log(total);
}

/// The gradients that all queries of a key/value head add to: rows of dk and dv, and one number per query head.
template <class Sum>
struct SharedGradients {
  std::vector<std::vector<Sum>> dk, dv;  // [k_tokens, head_dim]
  std::vector<bool> named;               // [k_tokens]: whether a span has the key
  std::vector<Sum>& d_sinks;             // [num_heads]
};

/// Adds to the shared gradients what one query of head h sends to the keys that it sees, and writes its dq.
template <class T>
void attend_backward(const AttentionBackward& op, const AttentionSpan& span, int64_t h, int64_t i,
                     SharedGradients<accumulator_t<T>>& shared) {
  using Sum = accumulator_t<T>;
  const AttentionShape& s = op.shape;
  const int64_t d = s.head_dim, v_dim = s.value_dim(), kv_head = h / (s.num_heads / s.num_kv_heads);
  const int64_t first_key = span.k_begin, query = span.q_begin + i, row = (query * s.num_heads + h) * v_dim;
  const T* q = at<T>(op.q, query, h, d);
  const T* d_out = op.d_out.data<T>() + row;
  const Sum lse = op.lse.data<Sum>()[span.q_begin * s.num_heads + h * span.q_length + i];
  const Sum delta = dot<Sum>(d_out, op.out.data<T>() + row, v_dim);
  if (op.sinks)
    shared.d_sinks[static_cast<size_t>(h)] -= std::exp(static_cast<Sum>(op.sinks.data<T>()[h]) - lse) * delta;

  std::vector<Sum> dq(static_cast<size_t>(d));
  const Interval keys = visible_keys(s, span, i);
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    const T* k = at<T>(op.k, first_key + j, kv_head, d);
    const T* v = at<T>(op.v, first_key + j, kv_head, v_dim);
    const auto [value, slope] = score<Sum>(s, q, k);
    const Sum probability = std::exp(value - lse);
    const Sum d_score = probability * (dot<Sum>(d_out, v, v_dim) - delta) * slope * static_cast<Sum>(s.scale);
    const auto key = static_cast<size_t>(first_key + j);
    add_scaled(probability, d_out, shared.dv[key]);
    add_scaled(d_score, q, shared.dk[key]);
    add_scaled(d_score, k, dq);
  }
  store(dq, op.dq, query, h, op.accumulate_q);
}

/// Calls body(row, statistic) with where each head of each query lies in out and in lse.
template <class Body>
void for_each_query_head(const AttentionShape& s, const Body& body) {
  for (int64_t b = 0; b < s.num_sequences(); ++b) {
    const AttentionSpan span = s.span(b);
    for (int64_t h = 0; h < s.num_heads; ++h)
      for (int64_t i = 0; i < span.q_length; ++i)
        body((span.q_begin + i) * s.num_heads + h, span.q_begin * s.num_heads + h * span.q_length + i);
  }
}

/// d_sinks [+=] the sums.
template <class Sum>
void write_sinks(const AttentionBackward& op, const std::vector<Sum>& sums) {
  visit_float(op.d_sinks.dtype(), [&](auto tag) {
    using G = typename decltype(tag)::type;
    G* out = op.d_sinks.data<G>();
    for (size_t h = 0; h < sums.size(); ++h)
      out[h] = static_cast<G>(op.accumulate_sinks ? static_cast<Sum>(out[h]) + sums[h] : sums[h]);
  });
}

}  // namespace

void run(const Attention& op) {
  check(op);
  visit_float(op.q.base.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    visit_head_elements(op.k.base.dtype(), [&](auto key_tag) {
      using K = typename decltype(key_tag)::type;
      for (int64_t b = 0; b < op.shape.num_sequences(); ++b) {
        const AttentionSpan span = op.shape.span(b);
        for (int64_t h = 0; h < op.shape.num_heads; ++h) {
          for (int64_t i = 0; i < span.q_length; ++i) attend<T, K>(op, span, h, i);
        }
      }
    });
  });
}

void run(const AttentionBackward& op) {
  check(op);
  const AttentionShape& s = op.shape;
  const int64_t group = s.num_heads / s.num_kv_heads;
  const auto keys = static_cast<size_t>(s.k_tokens());
  visit_float(op.q.base.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Sum = accumulator_t<T>;
    const std::vector<Sum> zeros(static_cast<size_t>(s.head_dim)), v_zeros(static_cast<size_t>(s.value_dim()));
    std::vector<Sum> d_sinks(static_cast<size_t>(s.num_heads));
    for (int64_t kv_head = 0; kv_head < s.num_kv_heads; ++kv_head) {
      SharedGradients<Sum> shared{{keys, zeros}, {keys, v_zeros}, std::vector<bool>(keys), d_sinks};
      for (int64_t b = 0; b < s.num_sequences(); ++b) {
        const AttentionSpan span = s.span(b);
        if (span.k_length > 0) std::fill_n(shared.named.begin() + span.k_begin, span.k_length, true);
        for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
          for (int64_t i = 0; i < span.q_length; ++i) attend_backward<T>(op, span, h, i, shared);
        }
      }
      for (size_t key = 0; key < keys; ++key) {
        if (!shared.named[key]) continue;
        store(shared.dk[key], op.dk, static_cast<int64_t>(key), kv_head, op.accumulate_kv);
        store(shared.dv[key], op.dv, static_cast<int64_t>(key), kv_head, op.accumulate_kv);
      }
    }
    if (op.d_sinks) write_sinks(op, d_sinks);
  });
}

void run(const MergeAttention& op) {
  check(op);
  const AttentionShape& s = op.shape;
  const int64_t v_dim = s.value_dim();
  visit_float(op.out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_same_v<accumulator_t<T>, T>) {
      for_each_query_head(s, [&](int64_t row, int64_t statistic) {
        T& lse = op.lse.data<T>()[statistic];
        const T piece = op.piece_lse.data<T>()[statistic], largest = std::max(lse, piece);
        if (piece == -std::numeric_limits<T>::infinity()) return;
        const T own_weight = std::exp(lse - largest), piece_weight = std::exp(piece - largest);
        const T total = own_weight + piece_weight;
        for (int64_t i = row * v_dim; i < (row + 1) * v_dim; ++i) {
          T& out = op.out.data<T>()[i];
          const T mixed = piece_weight / total * op.piece_out.data<T>()[i];
          out = own_weight == 0 ? mixed : own_weight / total * out + mixed;
        }
        lse = largest + std::log(total);
      });
    }
  });
}

}  // namespace nought::reference
