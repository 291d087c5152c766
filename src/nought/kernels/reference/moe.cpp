#include <algorithm>
#include <numeric>

#include "nought/kernels/check.h"
#include "nought/kernels/grouping.h"
#include "nought/kernels/reference/loops.h"
#include "nought/kernels/routing.h"

namespace nought::reference {
namespace {

/// Calls f(TypeTag<Real>{}) with the type of logits.
template <class F>
void visit_logits(DType dtype, const F& f) {
  dtype == DType::f64 ? f(TypeTag<double>{}) : f(TypeTag<float>{});
}

/// The activation, and its derivatives by gate and up.
template <class Real>
struct Swiglu {
  Real value, by_gate, by_up;
};

template <class Real, class Op>
Swiglu<Real> clamped_swiglu(const Op& op, Real gate, Real up) {
  const Real limit = static_cast<Real>(op.limit), alpha = static_cast<Real>(op.alpha);
  const Real g = std::min(gate, limit), u = std::clamp(up, -limit, limit);
  const Real s = 1 / (1 + std::exp(-alpha * g));
  // torch passes the gradient of a clamp at the limit itself.
  const Real by_gate = gate > limit ? Real{0} : (u + 1) * s * (1 + alpha * g * (1 - s));
  const Real by_up = up > limit || up < -limit ? Real{0} : g * s;
  return {(u + 1) * g * s, by_gate, by_up};
}

}  // namespace

void run(const Route& op) {
  check(op);
  visit_logits(op.logits.dtype(), [&](auto tag) {
    std::vector<double> sums(static_cast<size_t>(op.logits.dim(1)));
    route_tokens<typename decltype(tag)::type>(op, 0, op.logits.dim(0), sums);
    std::copy(sums.begin(), sums.end(), op.probability_sums.data<double>());
  });
}

void run(const RouteBackward& op) {
  check(op);
  visit_logits(op.logits.dtype(),
               [&](auto tag) { route_tokens_backward<typename decltype(tag)::type>(op, 0, op.logits.dim(0)); });
}

void run(const BalanceLoss& op) {
  check(op);
  const int64_t experts = op.gradient.numel();
  const double *choices = op.sums.data<double>(), *probabilities = choices + experts, *rest = probabilities + experts;
  const double tokens = rest[0], weight = rest[1], count = static_cast<double>(experts);
  const double products = std::inner_product(choices, choices + experts, probabilities, 0.0);
  const double balance = tokens == 0 ? 0 : count * products / (tokens * tokens);
  *op.loss.data<double>() = op.weight * op.coefficient * balance;
  const double scale = weight * op.coefficient * op.gradient_scale;
  const double factor = tokens == 0 ? 0 : scale * count / (tokens * tokens);
  for (int64_t e = 0; e < experts; ++e) op.gradient.data<double>()[e] = choices[e] * factor;
}

void run(const GroupByExpert& op) {
  check(op);
  const int64_t tokens = op.experts.dim(0), top_k = op.experts.dim(1);
  const int32_t* expert = op.experts.data<int32_t>();
  int32_t *row = op.row.data<int32_t>(), *token = op.token.data<int32_t>(), *pair = op.pair.data<int32_t>();
  for (const Tensor& index : {op.row, op.token, op.pair}) std::fill_n(index.data<int32_t>(), index.numel(), -1);
  int64_t begin = 0;
  for (int64_t e = 0; e < op.counts.numel(); ++e) {
    int64_t count = 0;
    for (int64_t k = 0; k < top_k; ++k) {
      for (int64_t t = 0; t < tokens; ++t) {
        const int64_t choice = t * top_k + k, place = begin + count;
        if (expert[choice] != e) continue;
        ++count;
        if (count > taken_choices(count, op.capacity)) continue;
        row[choice] = static_cast<int32_t>(place);
        token[place] = static_cast<int32_t>(t);
        pair[place] = static_cast<int32_t>(choice);
      }
    }
    op.counts.data<int32_t>()[e] = static_cast<int32_t>(count);
    begin += padded_rows(taken_choices(count, op.capacity));
  }
}

void run(const GatherRows& op) {
  check(op);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const int64_t n = op.x.dim(-1);
    for (int64_t i = 0; i < op.index.numel(); ++i) {
      const int64_t from = op.index.data<int32_t>()[i];
      for (int64_t j = 0; j < n; ++j) op.out.data<T>()[i * n + j] = from < 0 ? T{} : op.x.data<T>()[from * n + j];
    }
  });
}

void run(const CombineRows& op) {
  check(op);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Sum = accumulator_t<T>;
    const int64_t n = op.x.dim(-1), k = op.index.dim(-1);
    for (int64_t t = 0; t < op.index.rows(); ++t) {
      for (int64_t j = 0; j < n; ++j) {
        T& out = op.out.data<T>()[t * n + j];
        Sum sum = op.accumulate ? static_cast<Sum>(out) : Sum{0};
        for (int64_t s = t * k; s < (t + 1) * k; ++s) {
          const int64_t from = op.index.data<int32_t>()[s];
          if (from < 0) continue;
          const Sum weight = op.weights ? op.weights.data<Sum>()[s] : Sum{1};
          sum += weight * static_cast<Sum>(op.x.data<T>()[from * n + j]);
        }
        out = static_cast<T>(sum);
      }
    }
  });
}

void run(const ScaleRows& op) {
  check(op);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    const int64_t n = op.x.dim(-1);
    for (int64_t i = 0; i < op.x.numel(); ++i)
      op.y.data<T>()[i] = static_cast<T>(op.factors.data<Real>()[i / n] * static_cast<Real>(op.x.data<T>()[i]));
  });
}

void run(const DotRows& op) {
  check(op);
  visit_float(op.a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Sum = accumulator_t<T>;
    const int64_t n = op.a.dim(-1);
    for (int64_t i = 0; i < op.a.rows(); ++i) {
      Sum sum = op.accumulate ? op.out.data<Sum>()[i] : Sum{0};
      for (int64_t j = 0; j < n; ++j) {
        const Sum factor =
            op.factors ? static_cast<Sum>(op.factors.data<T>()[j]) + static_cast<Sum>(op.factor_offset) : Sum{1};
        sum += static_cast<Sum>(op.a.data<T>()[i * n + j]) * static_cast<Sum>(op.b.data<T>()[i * n + j]) * factor;
      }
      op.out.data<Sum>()[i] = sum;
    }
  });
}

void run(const ClampedSwiglu& op) {
  check(op);
  visit_float(op.y.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    const T* gate_up = op.gate_up.data<T>();
    for (int64_t i = 0; i < op.y.numel(); ++i) {
      const Real gate{gate_up[2 * i]}, up{gate_up[2 * i + 1]};
      op.y.data<T>()[i] = static_cast<T>(clamped_swiglu(op, gate, up).value);
    }
  });
}

void run(const ClampedSwigluBackward& op) {
  check(op);
  visit_float(op.dy.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    const T* gate_up = op.gate_up.data<T>();
    for (int64_t i = 0; i < op.dy.numel(); ++i) {
      const Real gate{gate_up[2 * i]}, up{gate_up[2 * i + 1]}, dy{op.dy.data<T>()[i]};
      const auto slope = clamped_swiglu(op, gate, up);
      op.d_gate_up.data<T>()[2 * i] = static_cast<T>(dy * slope.by_gate);
      op.d_gate_up.data<T>()[2 * i + 1] = static_cast<T>(dy * slope.by_up);
    }
  });
}

}  // namespace nought::reference
