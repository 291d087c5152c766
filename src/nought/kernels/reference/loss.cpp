#include <algorithm>
#include <cmath>
#include <utility>

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

/// The logarithm of the sum of a row's exponentials.
template <class Real, class T>
Real log_of_sum(const T* logits, int64_t n) {
  const Real largest{*std::max_element(logits, logits + n, [](T a, T b) { return Real{a} < Real{b}; })};
  Real sum = 0;
  for (int64_t j = 0; j < n; ++j) sum += std::exp(Real{logits[j]} - largest);
  return std::log(sum) + largest;
}

/// The divergence of one row of logits: [n], which becomes its gradient if asked.
template <class T, class Real>
Real jensen_shannon(const JensenShannon& op, T* logits, const T* teacher, int64_t n) {
  const Real student_sum = log_of_sum<Real>(logits, n), teacher_sum = log_of_sum<Real>(teacher, n);
  const Real beta = static_cast<Real>(op.beta), scale = static_cast<Real>(op.gradient_scale);
  // The logarithm of S over what it is compared with, and of T likewise.
  const auto ratios = [&](int64_t j) {
    const Real s = Real{logits[j]} - student_sum, t = Real{teacher[j]} - teacher_sum;
    if (beta <= 0 || beta >= 1) return std::pair{s - t, t - s};
    const Real a = s + std::log(1 - beta), b = t + std::log(beta);
    const Real mixture = std::max(a, b) + std::log1p(std::exp(-std::abs(a - b)));
    return std::pair{s - mixture, t - mixture};
  };
  Real of_student = 0, of_teacher = 0;
  for (int64_t j = 0; j < n; ++j) {
    const auto [student_ratio, teacher_ratio] = ratios(j);
    of_student += std::exp(Real{logits[j]} - student_sum) * student_ratio;
    of_teacher += std::exp(Real{teacher[j]} - teacher_sum) * teacher_ratio;
  }
  for (int64_t j = 0; op.gradient && j < n; ++j) {
    const Real s = std::exp(Real{logits[j]} - student_sum);
    const Real slope = beta <= 0   ? s - std::exp(Real{teacher[j]} - teacher_sum)
                       : beta >= 1 ? s * (ratios(j).first - of_student)
                                   : (1 - beta) * s * (ratios(j).first - of_student);
    logits[j] = static_cast<T>(slope * scale);
  }
  return beta <= 0 ? of_teacher : beta >= 1 ? of_student : beta * of_teacher + (1 - beta) * of_student;
}

}  // namespace

void run(const JensenShannon& op) {
  check(op);
  visit_float(op.logits.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    const int64_t n = op.logits.dim(-1);
    for (int64_t row = 0; row < op.logits.rows(); ++row) {
      T* logits = op.logits.data<T>() + row * n;
      Real& loss = op.loss.data<Real>()[row];
      if (op.targets.data<int32_t>()[row] != op.ignore_index) {
        loss = jensen_shannon<T, Real>(op, logits, op.teacher.data<T>() + row * n, n);
      } else {
        loss = 0;
        if (op.gradient) std::fill(logits, logits + n, T{});
      }
    }
  });
}

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
