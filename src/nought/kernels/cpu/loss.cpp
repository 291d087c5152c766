#include <limits>
#include <numbers>

#include "nought/kernels/check.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/scratch.h"
#include "nought/kernels/cpu/targets.h"
#include "nought/kernels/reference/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/loss.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/math-inl.h"
#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

using V = hn::Vec<F32>;

/// e^x for x <= 64: 0 below -87.
template <class T>
HWY_INLINE V power(V x) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  if constexpr (kBrief<T>) {
    const V e = brief_exp2<true>(F32(), x, std::numbers::log2e_v<float>);
    // AVX-512 goes on to 0, and AVX2 to anything.
    return HWY_TARGET == HWY_AVX3 ? e : hn::IfThenZeroElse(hn::Lt(x, hn::Set(F32(), -87.0f)), e);
  } else
#endif
    return exp(F32(), x);
}

/// The sum of a row's exponentials, and the largest of its logits.
struct RowSum {
  float sum, largest;
};

/// powers = e^(logits - shift): [n], in the order of sweep_all<T>(). Asks for the first half of the row at `next`.
template <class T>
HWY_INLINE RowSum exponentials(const T* logits, int64_t n, int64_t next, float shift, float* powers) {
  const F32 d;
  constexpr float kLowest = -std::numeric_limits<float>::infinity();  // the logit of a lane that is not there
  Lanes4<F32> sums(d, 0);
  V largest = hn::Set(d, kLowest);
  const V shifts = hn::Set(d, shift);
  reduce_all<T>(d, 0, n, sums, [=, &largest](int64_t i, auto access, auto& sum) HWY_ATTR {
    access.prefetch(logits + next + i / 2);
    const V x = access.load(d, logits + i, kLowest), e = power<T>(hn::Sub(x, shifts));
    largest = hn::Max(largest, x);
    sum = hn::Add(sum, e);
    access.store_sums(d, e, powers + i);
  });
  return {sums.sum(d), hn::GetLane(hn::MaxOfLanes(d, largest))};
}

/// The loss of one row of logits: [n], which becomes its gradient if asked. Its exponentials are computed once, for
/// they are what takes the time: as they are if the largest fits well into fp32 (|x| <= 64), else once more, of what a
/// logit is less than the largest. `powers`: [n] in the second-level cache keeps them. Both passes ask for a half of
/// the next row, so that neither waits for memory.
template <class T>
HWY_INLINE float cross_entropy_row(const CrossEntropy& op, T* logits, int64_t n, int64_t next, int32_t target,
                                   float weight, float* powers) {
  const F32 d;
  constexpr float kMost = 64;
  float shift = 0;
  RowSum row = exponentials(logits, n, next, shift, powers);
  if (!(std::abs(row.largest) <= kMost)) shift = row.largest, row = exponentials(logits, n, next, shift, powers);
  const float at_target = float{logits[target]} - shift, e = hn::GetLane(power<T>(hn::Set(d, at_target)));
  const double share = double{e} / double{row.sum};
  if (op.gradient) {
    const double gradient_scale = op.gradient_scale * double{weight};
    const auto scale = static_cast<float>(gradient_scale / double{row.sum});
    const auto factor = hn::Set(d, std::isnan(scale) ? std::numeric_limits<float>::quiet_NaN() : scale);
    sweep_all<T>(d, 0, n, [=](int64_t i, auto access) HWY_ATTR {
      access.prefetch(logits + next + (n + i) / 2);
      access.store_approximate(d, hn::Mul(access.load_sums(d, powers + i), factor), logits + i);
    });
    logits[target] = T(static_cast<float>((share - 1) * gradient_scale));
  }
  // Where the target has most of the sum, its own exponential's error is the sum's.
  const double loss = share > 0.5 ? -std::log(share) : std::log(double{row.sum}) - double{at_target};
  return static_cast<float>(loss * double{weight});
}

void cross_entropy(const CrossEntropy& op, Interval rows) {
  visit(op.logits.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const int64_t n = op.logits.dim(-1);
    const Scratch powers(bytes_for<float>(n));
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      T* logits = op.logits.data<T>() + row * n;
      const int32_t target = op.targets.data<int32_t>()[row];
      const float weight = op.weights.defined() ? op.weights.data<float>()[row] : 1;
      float& loss = op.loss.data<float>()[row];
      if (target != op.ignore_index && weight != 0) {
        loss = cross_entropy_row(op, logits, n, row + 1 < rows.end ? n : 0, target, weight, powers.data<float>());
      } else {
        loss = 0;
        if (op.gradient) std::fill(logits, logits + n, T{});
      }
    }
  });
}

/// The logarithm of the sum of a row's exponentials. powers: [n], get these over their sum.
template <class T>
HWY_INLINE float probabilities(const T* logits, int64_t n, float* powers) {
  const F32 d;
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  Lanes4<F32> most(d, kLowest), sums(d, 0);
  reduce(d, 0, n, most, [=](int64_t i, auto access, auto& largest) HWY_ATTR {
    largest = hn::Max(largest, access.load(d, logits + i, kLowest));
  });
  const float largest = most.max(d);
  const V shift = hn::Set(d, largest);
  reduce(d, 0, n, sums, [=](int64_t i, auto access, auto& sum) HWY_ATTR {
    const V e = exp(d, hn::Sub(access.load(d, logits + i, kLowest), shift));
    sum = hn::Add(sum, e);
    access.store(d, e, powers + i);
  });
  const float sum = sums.sum(d);
  const V factor = hn::Set(d, 1 / sum);
  sweep(d, 0, n, [=](int64_t i, auto access) HWY_ATTR {
    access.store(d, hn::Mul(access.load(d, powers + i), factor), powers + i);
  });
  return std::log(sum) + largest;
}

/// log(1 + x) for x in [0, 1], to 1e-8: 2 artanh(z) with z = x / (2 + x), which is at most 1/3.
HWY_INLINE V log_of_one_plus(V x) {
  const F32 d;
  const V z = hn::Div(x, hn::Add(x, hn::Set(d, 2.0f)));
  const float coefficients[] = {2.0f, 2.0f / 3, 2.0f / 5, 2.0f / 7, 2.0f / 9, 2.0f / 11, 2.0f / 13};
  return hn::Mul(z, polynomial(d, hn::Mul(z, z), coefficients));
}

/// The logarithms of what student and teacher say over what they are compared with.
struct LogRatios {
  V student, teacher;
};
/// s, t: the logarithms of both probabilities.
HWY_INLINE LogRatios log_ratios(V s, V t, const JensenShannon& op) {
  const F32 d;
  if (op.beta <= 0 || op.beta >= 1) return {hn::Sub(s, t), hn::Sub(t, s)};
  const V a = hn::Add(s, hn::Set(d, static_cast<float>(std::log1p(-op.beta)))),
          b = hn::Add(t, hn::Set(d, static_cast<float>(std::log(op.beta))));
  const V smaller = exp(d, hn::Neg(hn::Abs(hn::Sub(a, b))));
  const V mixture = hn::Add(hn::Max(a, b), log_of_one_plus(smaller));
  return {hn::Sub(s, mixture), hn::Sub(t, mixture)};
}

/// The divergence of one row of logits: [n], which becomes its gradient if asked. numbers: [3 n].
template <class T>
HWY_INLINE float jensen_shannon_row(const JensenShannon& op, T* logits, const T* teacher, int64_t n, float* numbers) {
  const F32 d;
  float *const own = numbers, *const others = numbers + n, *const ratios = numbers + 2 * n;
  const V own_sum = hn::Set(d, probabilities(logits, n, own)),
          other_sum = hn::Set(d, probabilities(teacher, n, others));
  Lanes4<F32> of_student(d, 0), of_teacher(d, 0);
  const auto ratios_at = [=, &op](int64_t i, auto access) HWY_ATTR {
    return log_ratios(hn::Sub(access.load(d, logits + i), own_sum), hn::Sub(access.load(d, teacher + i), other_sum),
                      op);
  };
  reduce(d, 0, n, of_student, [=](int64_t i, auto access, auto& sum) HWY_ATTR {
    const V ratio = ratios_at(i, access).student;
    sum = hn::MulAdd(access.load(d, own + i), ratio, sum);
    access.store(d, ratio, ratios + i);
  });
  if (op.beta < 1)
    reduce(d, 0, n, of_teacher, [=](int64_t i, auto access, auto& sum) HWY_ATTR {
      sum = hn::MulAdd(access.load(d, others + i), ratios_at(i, access).teacher, sum);
    });
  const double student = double{of_student.sum(d)}, beta = op.beta;
  if (op.gradient) {
    const V mean = hn::Set(d, static_cast<float>(student)), scale = hn::Set(d, static_cast<float>(op.gradient_scale)),
            factor = hn::Set(d, static_cast<float>(op.gradient_scale * (beta < 1 ? 1 - beta : 1)));
    sweep(d, 0, n, [=](int64_t i, auto access) HWY_ATTR {
      const V s = access.load(d, own + i);
      const V slope = beta <= 0 ? hn::Mul(scale, hn::Sub(s, access.load(d, others + i)))
                                : hn::Mul(hn::Mul(factor, s), hn::Sub(access.load(d, ratios + i), mean));
      access.store(d, slope, logits + i);
    });
  }
  if (beta >= 1) return static_cast<float>(student);
  const double other{of_teacher.sum(d)};
  return static_cast<float>(beta <= 0 ? other : beta * other + (1 - beta) * student);
}

void jensen_shannon(const JensenShannon& op, Interval rows) {
  visit(op.logits.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const int64_t n = op.logits.dim(-1);
    const Scratch numbers(3 * bytes_for<float>(n));
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      T* logits = op.logits.data<T>() + row * n;
      float& loss = op.loss.data<float>()[row];
      if (op.targets.data<int32_t>()[row] != op.ignore_index) {
        loss = jensen_shannon_row(op, logits, op.teacher.data<T>() + row * n, n, numbers.data<float>());
      } else {
        loss = 0;
        if (op.gradient) std::fill(logits, logits + n, T{});
      }
    }
  });
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {

HWY_EXPORT(cross_entropy);

void run(const CrossEntropy& op) {
  if (op.logits.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_rows(op.logits.rows(), op.logits.dim(-1), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(cross_entropy)(op, {begin, end});
  });
}

HWY_EXPORT(jensen_shannon);

void run(const JensenShannon& op) {
  if (op.logits.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_rows(op.logits.rows(), op.logits.dim(-1), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(jensen_shannon)(op, {begin, end});
  });
}

}  // namespace nought::cpu
#endif
