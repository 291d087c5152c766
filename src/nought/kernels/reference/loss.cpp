#include <algorithm>

#include "nought/kernels/check.h"
#include "nought/kernels/reference/loops.h"

namespace nought::reference {
namespace {

/// The loss of one row of logits: [n], which becomes its gradient if asked.
template <class T, class Real>
Real cross_entropy(const CrossEntropy& op, T* logits, int64_t n, int32_t target, float weight) {
  Real largest{logits[0]}, sum = 0;  // exp() of logits less the largest cannot overflow
  for (int64_t j = 1; j < n; ++j) largest = std::max(largest, Real{logits[j]});
  for (int64_t j = 0; j < n; ++j) sum += std::exp(Real{logits[j]} - largest);
  const Real loss = (std::log(sum) + largest - Real{logits[target]}) * Real{weight};
  if (!op.gradient) return loss;
  const Real scale = static_cast<Real>(op.gradient_scale * double{weight});
  for (int64_t j = 0; j < n; ++j) {
    const Real probability = std::exp(Real{logits[j]} - largest) / sum;
    logits[j] = static_cast<T>((probability - (j == target ? 1 : 0)) * scale);
  }
  return loss;
}

}  // namespace

void run(const CrossEntropy& op) {
  check(op);
  visit_float(op.logits.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    const int64_t n = op.logits.dim(-1);
    for (int64_t row = 0; row < op.logits.rows(); ++row) {
      T* logits = op.logits.data<T>() + row * n;
      const int32_t target = op.targets.data<int32_t>()[row];
      const float weight = op.weights.defined() ? op.weights.data<float>()[row] : 1;
      Real& loss = op.loss.data<Real>()[row];
      if (target != op.ignore_index && weight != 0) {
        loss = cross_entropy<T, Real>(op, logits, n, target, weight);
      } else {
        loss = 0;
        if (op.gradient) std::fill(logits, logits + n, T{});
      }
    }
  });
}

}  // namespace nought::reference
