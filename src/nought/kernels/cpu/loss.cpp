#include <limits>
#include <numbers>

#include "nought/kernels/check.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/parallel.h"
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

/// e^x for x <= 0, for sums, or to be rounded to T with `kRounded`.
template <class T, bool kRounded>
HWY_INLINE V power(V x) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  if constexpr (kBrief<T>)
    return brief_exp2<!kRounded>(F32(), hn::Mul(x, hn::Set(F32(), std::numbers::log2e_v<float>)));
  else
#endif
    return exp(F32(), x);
}

/// The loss of one row of logits: [n], which becomes its gradient if asked. A row fits the second-level cache, so of
/// the three passes only the first reads memory. The others compute, and ask for the halves of the row at `next`.
template <class T>
HWY_INLINE float cross_entropy_row(const CrossEntropy& op, T* logits, int64_t n, int64_t next, int32_t target,
                                   float weight) {
  const F32 d;
  constexpr float kLowest = -std::numeric_limits<float>::infinity();  // the logit of a lane that is not there
  Lanes4<F32> maxima(d, kLowest), sums(d, 0);
  reduce_all<T>(d, 0, n, maxima, [=](int64_t i, auto access, auto& largest) HWY_ATTR {
    largest = hn::Max(largest, access.load(d, logits + i, kLowest));
  });
  const float max = maxima.max(d);
  const auto largest = hn::Set(d, max);
  reduce_all<T>(d, 0, n, sums, [=](int64_t i, auto access, auto& sum) HWY_ATTR {
    access.prefetch(logits + next + i / 2);
    sum = hn::Add(sum, power<T, false>(hn::Sub(access.load(d, logits + i, kLowest), largest)));
  });
  const float sum = sums.sum(d), at_target = float{logits[target]} - max;
  if (op.gradient) {
    const float gradient_scale = static_cast<float>(op.gradient_scale * double{weight});
    const auto factor = hn::Set(d, gradient_scale / sum);
    sweep_all<T>(d, 0, n, [=](int64_t i, auto access) HWY_ATTR {
      access.prefetch(logits + next + (n + i) / 2);
      const auto p = power<T, true>(hn::Sub(access.load(d, logits + i, kLowest), largest));
      access.store(d, hn::Mul(p, factor), logits + i);
    });
    logits[target] = T((std::exp(at_target) / sum - 1) * gradient_scale);
  }
  return (std::log(sum) - at_target) * weight;
}

void cross_entropy(const CrossEntropy& op, Interval rows) {
  visit(op.logits.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const int64_t n = op.logits.dim(-1);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      T* logits = op.logits.data<T>() + row * n;
      const int32_t target = op.targets.data<int32_t>()[row];
      const float weight = op.weights.defined() ? op.weights.data<float>()[row] : 1;
      float& loss = op.loss.data<float>()[row];
      if (target != op.ignore_index && weight != 0) {
        loss = cross_entropy_row(op, logits, n, row + 1 < rows.end ? n : 0, target, weight);
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

}  // namespace nought::cpu
#endif
