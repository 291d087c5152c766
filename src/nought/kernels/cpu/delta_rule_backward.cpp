#include <vector>

#include "nought/kernels/check.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/targets.h"
#include "nought/kernels/reference/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/delta_rule_backward.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/delta_rule-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

/// The gradients that the value heads of one key head form. Chunks are taken from the last to the first.
template <class T>
struct DeltaGradients {
  using Chunk = DeltaChunk<T, DeltaRuleBackward>;

  DeltaGradients(const DeltaRuleBackward& operation, int64_t head, int64_t chunks, Arena& arena)
      : op(operation), s(op.shape), heads(s.heads_of_key()), chunk(op, head, arena), kp(chunk.kp), vp(chunk.vp) {
    const int64_t state_rows = heads * s.key_dim;
    begins = arena.matrix(chunks * state_rows, vp), state = arena.matrix(state_rows, vp);
    d_state = arena.matrix(state_rows, vp);
    for (float** each : {&state_transposed, &d_state_transposed}) *each = arena.matrix(s.value_dim, kp);
    u_transposed = arena.matrix(s.value_dim, kChunk);
    for (float** each : {&d_out, &du, &room}) *each = arena.matrix(kChunk, vp);
    for (float** each : {&dq, &dk, &part}) *each = arena.matrix(kChunk, kp);
    for (float** each : {&d_within, &d_keys}) *each = arena.matrix(kChunk, kChunk);
  }
  static int64_t elements(const DeltaShape& shape, int64_t chunks) {
    const int64_t key = round_up(shape.key_dim, kPadding), value = round_up(shape.value_dim, kPadding);
    return Chunk::elements(shape) + (chunks + 2) * shape.heads_of_key() * shape.key_dim * value +
           shape.value_dim * (2 * key + kChunk) + kChunk * (3 * value + 3 * key + 2 * kChunk);
  }
  int64_t state_size() const { return s.key_dim * vp; }

  void of_span(const StateSpan& span) {
    const int64_t chunks = ceil_div(span.length, kChunk), all = heads * state_size();
    const auto load = [&](int64_t index) HWY_ATTR {
      chunk.load_keys(span.begin + index * kChunk, std::min(kChunk, span.length - index * kChunk));
    };
    std::fill(state, state + all, 0.0f);
    for (int64_t index = 0; index < chunks; ++index) {
      std::copy_n(state, all, begins + index * all);
      if (index + 1 == chunks) break;
      load(index);
      for (int64_t h = 0; h < heads; ++h) {
        chunk.load_head(chunk.key_head * heads + h);
        chunk.solve_from(state + h * state_size());
        chunk.advance(state + h * state_size(), room);
      }
    }
    std::fill(d_state, d_state + all, 0.0f);
    for (int64_t index = chunks; index-- > 0;) {
      load(index);
      std::fill(dq, dq + chunk.n * kp, 0.0f), std::fill(dk, dk + chunk.n * kp, 0.0f);
      for (int64_t h = 0; h < heads; ++h) {
        chunk.load_head(chunk.key_head * heads + h);
        of_head(begins + index * all + h * state_size(), d_state + h * state_size());
      }
      put_unit(chunk.q, chunk.q_inverse, 1 / std::sqrt(static_cast<float>(s.key_dim)), dq, 0);
      put_unit(chunk.k, chunk.k_inverse, 1, dk, 1);
    }
  }

  /// given: the gradient of the state behind the chunk, which becomes that before it.
  void of_head(const float* before, float* given) {
    const int64_t n = chunk.n;
    std::fill(d_sums, d_sums + kChunk, 0.0f);
    chunk.solve_from(before);
    for (int64_t i = 0; i < n; ++i) {
      widen(op.d_out.data<T>() + (chunk.first + i) * s.values() + chunk.head * s.value_dim, s.value_dim,
            d_out + i * vp);
      std::fill(d_out + i * vp + s.value_dim, d_out + (i + 1) * vp, 0.0f);
    }
    transpose(s.key_dim, s.value_dim, before, vp, state_transposed, kp);
    transpose(s.key_dim, s.value_dim, given, vp, d_state_transposed, kp);
    transpose(n, s.value_dim, chunk.u, vp, u_transposed, kChunk);
    of_added(given);
    of_reads();
    of_solution();
    of_state(before, given);
    of_products();
    put_gates();
  }

  /// du, and what the state behind the chunk says of keys.
  void of_added(const float* given) {
    const int64_t n = chunk.n;
    multiply(n, vp, s.key_dim, plain(chunk.k, kp), given, vp, du, vp);
    for (int64_t i = 0; i < n; ++i) scale_row(vp, du + i * vp, chunk.to_end[i], du + i * vp);
    multiply(n, vp, n, transposed(chunk.within, kChunk), d_out, vp, du, vp, /*adds=*/true, Part::upper);
    multiply(n, kp, s.value_dim, plain(chunk.u, vp), d_state_transposed, kp, part, kp);
    for (int64_t i = 0; i < n; ++i) {
      const float along = chunk.to_end[i] * dot_row(kp, chunk.k + i * kp, part + i * kp);
      d_sums[i] -= along, d_sums[n - 1] += along;
      scale_row(kp, part + i * kp, chunk.to_end[i], dk + i * kp, /*adds=*/true);
    }
  }
  /// What queries read of the state, and within the chunk.
  void of_reads() {
    const int64_t n = chunk.n;
    multiply(n, kp, s.value_dim, plain(d_out, vp), state_transposed, kp, part, kp);
    for (int64_t i = 0; i < n; ++i) {
      d_sums[i] += chunk.from_begin[i] * dot_row(kp, chunk.q + i * kp, part + i * kp);
      scale_row(kp, part + i * kp, chunk.from_begin[i], dq + i * kp, /*adds=*/true);
    }
    multiply(n, chunk.np, s.value_dim, plain(d_out, vp), u_transposed, kChunk, d_within, kChunk);
    for (int64_t i = 0; i < n; ++i) of_weights(i, d_within + i * kChunk, chunk.within + i * kChunk, 1);
  }
  /// Through the system that u solves: du becomes the gradient of its right side.
  void of_solution() {
    const int64_t n = chunk.n;
    solve(n, vp, chunk.minus_a, kChunk, du, vp, /*of_transpose=*/true);
    multiply(n, chunk.np, s.value_dim, plain(du, vp), u_transposed, kChunk, d_keys, kChunk);
    for (int64_t i = 0; i < n; ++i) {
      // The gradient of -A is that of the product with u.
      const float along = dot_row(chunk.np, d_keys + i * kChunk, chunk.minus_a + i * kChunk);
      d_beta[i] = dot_row(vp, du + i * vp, chunk.error + i * vp) + along / std::max(chunk.beta[i], 1e-30f);
      of_weights(i, d_keys + i * kChunk, chunk.minus_a + i * kChunk, -chunk.beta[i]);
      put_row(du + i * vp, chunk.beta[i], chunk.value_at(i), s.value_dim);
      scale_row(vp, du + i * vp, -chunk.beta[i] * chunk.from_begin[i], du + i * vp);  // that of K S
    }
    multiply(n, kp, s.value_dim, plain(du, vp), state_transposed, kp, part, kp);
    for (int64_t i = 0; i < n; ++i) {
      d_sums[i] += dot_row(kp, chunk.k + i * kp, part + i * kp);
      scale_row(kp, part + i * kp, 1, dk + i * kp, /*adds=*/true);
    }
  }
  void of_state(const float* before, float* given) {
    const int64_t n = chunk.n;
    d_sums[n - 1] += chunk.whole * dot_row(state_size(), before, given);
    scale_row(state_size(), given, chunk.whole, given);
    for (int64_t i = 0; i < n; ++i) scale_row(vp, d_out + i * vp, chunk.from_begin[i], d_out + i * vp);
    multiply(s.key_dim, vp, n, transposed(chunk.q, kp), d_out, vp, given, vp, /*adds=*/true);
    multiply(s.key_dim, vp, n, transposed(chunk.k, kp), du, vp, given, vp, /*adds=*/true);
  }
  void of_products() {
    const int64_t n = chunk.n;
    multiply(n, kp, n, plain(d_within, kChunk), chunk.k, kp, dq, kp, /*adds=*/true, Part::lower);
    multiply(n, kp, n, transposed(d_within, kChunk), chunk.q, kp, dk, kp, /*adds=*/true, Part::upper);
    multiply(n, kp, n, plain(d_keys, kChunk), chunk.k, kp, dk, kp, /*adds=*/true, Part::lower);
    multiply(n, kp, n, transposed(d_keys, kChunk), chunk.k, kp, dk, kp, /*adds=*/true, Part::upper);
  }
  /// Row i of the gradient of `weights` = factor * product * decay becomes that of the product. Where weights have
  /// nothing, decay or they are zeros.
  void of_weights(int64_t i, float* d_row, const float* weights, float factor) {
    const F32 d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto by = hn::Set(d, factor);
    auto own = hn::Zero(d);
    for (int64_t j = 0; j < chunk.np; j += lanes) {
      const auto given = hn::LoadU(d, d_row + j), along = hn::Mul(given, hn::LoadU(d, weights + j));
      own = hn::Add(own, along);
      hn::StoreU(hn::Sub(hn::LoadU(d, d_sums + j), along), d, d_sums + j);
      hn::StoreU(hn::Mul(given, hn::Mul(by, hn::LoadU(d, chunk.decay + i * kChunk + j))), d, d_row + j);
    }
    d_sums[i] += hn::GetLane(hn::SumOfLanes(d, own));
    if (factor != 1) d_row[i] = 0;  // A has no diagonal
  }
  void put_gates() {
    float d_g = 0;
    const int64_t head = chunk.head, local = head - chunk.key_head * heads;
    for (int64_t i = chunk.n; i-- > 0;) {
      d_g += d_sums[i];
      const int64_t at = (chunk.first + i) * 2 * s.value_heads + head;
      const float da = d_g * chunk.rate / (1 + std::exp(-chunk.raw_a[i])), beta = chunk.beta[i];
      op.d_ba.data<T>()[at] = static_cast<T>(d_beta[i] * beta * (1 - beta));
      op.d_ba.data<T>()[at + s.value_heads] = static_cast<T>(da);
      d_a_log[local] += double{d_g * chunk.g[i]}, d_dt_bias[local] += double{da};
    }
  }
  void put_row(const float* from, float factor, int64_t at, int64_t count) {
    const F32 d;
    T* const to = op.d_qkv.data<T>() + at;
    const auto by = hn::Set(d, factor);
    sweep(d, 0, count,
          [=](int64_t j, auto access) HWY_ATTR { access.store(d, hn::Mul(access.load(d, from + j), by), to + j); });
  }
  /// Gradients of vectors before they were given the length `factor`.
  void put_unit(const float* units, const float* inverse, float factor, float* given, int64_t which) {
    for (int64_t i = 0; i < chunk.n; ++i) {
      const float *unit = units + i * kp, along = dot_row(kp, unit, given + i * kp) / (factor * factor);
      scale_row(kp, unit, -along, given + i * kp, /*adds=*/true);
      put_row(given + i * kp, factor * inverse[i], chunk.at(i, which), s.key_dim);
    }
  }

  const DeltaRuleBackward& op;
  const DeltaShape& s;
  int64_t heads;
  Chunk chunk;
  int64_t kp, vp;
  double *d_a_log = nullptr, *d_dt_bias = nullptr;  // one number for each value head

 private:
  float *begins, *state, *d_state, *state_transposed, *d_state_transposed, *u_transposed;
  float *d_out, *du, *room, *dq, *dk, *part;
  float *d_within, *d_keys;  // gradients of M and -A, and then of the products in them
  float d_sums[kChunk], d_beta[kChunk];
};

template <class T>
HWY_NOINLINE void backward_of(const DeltaRuleBackward& op, int64_t key_head, double* d_a_log, double* d_dt_bias) {
  int64_t chunks = 1;
  for (const StateSpan& span : op.spans) chunks = std::max(chunks, ceil_div(span.length, kChunk));
  const Scratch scratch(bytes_for<float>(DeltaGradients<T>::elements(op.shape, chunks)));
  Arena arena(scratch.data<float>());
  DeltaGradients<T> gradients(op, key_head, chunks, arena);
  gradients.d_a_log = d_a_log, gradients.d_dt_bias = d_dt_bias;
  for (const StateSpan& span : op.spans) gradients.of_span(span);
}

void delta_rule_backward(const DeltaRuleBackward& op, int64_t key_head, double* d_a_log, double* d_dt_bias) {
  visit(op.qkv.dtype(), [&](auto tag) { backward_of<typename decltype(tag)::type>(op, key_head, d_a_log, d_dt_bias); });
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {

HWY_EXPORT(delta_rule_backward);

void run(const DeltaRuleBackward& op) {
  if (op.qkv.dtype() == DType::f64) return reference::run(op);
  check(op);
  const int64_t heads = op.shape.value_heads, each = op.shape.heads_of_key();
  std::vector<double> d_a_log(static_cast<size_t>(heads)), d_dt_bias(static_cast<size_t>(heads));
  parallel_for(op.shape.key_heads, static_cast<int64_t>(op.flops()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t head = begin; head < end; ++head)
      HWY_DYNAMIC_DISPATCH(delta_rule_backward)(op, head, d_a_log.data() + head * each, d_dt_bias.data() + head * each);
  });
  visit_float(op.d_a_log.dtype(), [&](auto tag) {
    using D = typename decltype(tag)::type;
    const auto put = [&](const std::vector<double>& from, const Tensor& to) {
      for (size_t i = 0; i < from.size(); ++i) {
        D& element = to.data<D>()[i];
        element =
            static_cast<D>(static_cast<float>(from[i]) + (op.accumulate_weight ? static_cast<float>(element) : 0.0f));
      }
    };
    put(d_a_log, op.d_a_log), put(d_dt_bias, op.d_dt_bias);
  });
}

}  // namespace nought::cpu
#endif
