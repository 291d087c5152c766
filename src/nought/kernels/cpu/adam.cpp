#include "nought/kernels/check.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/targets.h"
#include "nought/kernels/reference/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/adam.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

template <class G>
HWY_INLINE void update(const Adam& op, Interval range) {
  const F32 d;
  const auto set = [d](double value) HWY_ATTR { return hn::Set(d, static_cast<float>(value)); };
  float *parameter = op.parameter.data<float>(), *exp_avg = op.exp_avg.data<float>();
  float* exp_avg_sq = op.exp_avg_sq.data<float>();
  const G* gradient = op.gradient.data<G>();
  const auto beta1 = set(op.beta1), rest1 = set(1 - op.beta1), beta2 = set(op.beta2), rest2 = set(1 - op.beta2);
  const auto step = set(op.lr / op.bias1), inverse_root2 = set(1 / std::sqrt(op.bias2)), eps = set(op.eps);
  const auto gradient_scale = set(op.gradient_scale);
  const auto keep = set(op.decoupled_decay ? 1 - op.lr * op.weight_decay : 1);
  const auto decay = set(op.decoupled_decay ? 0 : op.weight_decay);
  sweep(d, range.begin, range.end, [=](int64_t i, auto access) HWY_ATTR {
    const auto p = hn::Mul(access.load(d, parameter + i), keep);
    const auto g = hn::MulAdd(decay, p, hn::Mul(access.load(d, gradient + i), gradient_scale));
    const auto m = hn::MulAdd(beta1, access.load(d, exp_avg + i), hn::Mul(rest1, g));
    const auto v = hn::MulAdd(beta2, access.load(d, exp_avg_sq + i), hn::Mul(rest2, hn::Mul(g, g)));
    access.store(d, m, exp_avg + i);
    access.store(d, v, exp_avg_sq + i);
    const auto root = hn::MulAdd(hn::Sqrt(v), inverse_root2, eps);
    access.store(d, hn::NegMulAdd(step, hn::Div(m, root), p), parameter + i);
  });
}

/// Block by block, so that the 16-bit copy is rounded from parameters that are still in the first-level cache.
void adam(const Adam& op, Interval range) {
  constexpr int64_t kBlock = 2048;
  for (int64_t begin = range.begin; begin < range.end; begin += kBlock) {
    const Interval block{begin, std::min(range.end, begin + kBlock)};
    visit(op.gradient.dtype(), [&](auto tag) HWY_ATTR { update<typename decltype(tag)::type>(op, block); });
    if (!op.parameter_copy) continue;
    visit(op.parameter_copy.dtype(), [&](auto tag) HWY_ATTR {
      using C = typename decltype(tag)::type;
      const F32 d;
      const float* parameter = op.parameter.data<float>();
      C* narrow = op.parameter_copy.data<C>();
      sweep(d, block.begin, block.end,
            [=](int64_t i, auto access) HWY_ATTR { access.store(d, access.load(d, parameter + i), narrow + i); });
    });
  }
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {

HWY_EXPORT(adam);

void run(const Adam& op) {
  const bool has_f64_copy = op.parameter_copy && op.parameter_copy.dtype() == DType::f64;
  if (op.gradient.dtype() == DType::f64 || has_f64_copy) return reference::run(op);
  check(op);
  parallel_elements(op.parameter.numel(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(adam)(op, {begin, end});
  });
}

}  // namespace nought::cpu
#endif
