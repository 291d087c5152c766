#include "nought/kernels/check.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/targets.h"
#include "nought/kernels/reference/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/bounds.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/math-inl.h"
#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

void softcap(const Softcap& op, int64_t begin, int64_t end) {
  visit(op.x.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const F32 d;
    T* x = op.x.data<T>();
    const auto cap = hn::Set(d, static_cast<float>(op.cap)), inverse = hn::Set(d, static_cast<float>(1 / op.cap));
    sweep_all<T>(d, begin, end, [=](int64_t i, auto access) HWY_ATTR {
      access.store(d, hn::Mul(cap, tanh(d, hn::Mul(access.load(d, x + i), inverse))), x + i);
    });
  });
}

void softcap_backward(const SoftcapBackward& op, int64_t begin, int64_t end) {
  visit(op.y.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const F32 f;
    const T* y = op.y.data<T>();
    T* d = op.d.data<T>();
    const auto inverse = hn::Set(f, static_cast<float>(1 / op.cap)), one = hn::Set(f, 1.0f);
    sweep_all<T>(f, begin, end, [=](int64_t i, auto access) HWY_ATTR {
      const auto t = hn::Mul(access.load(f, y + i), inverse);
      access.store(f, hn::Mul(access.load(f, d + i), hn::NegMulAdd(t, t, one)), d + i);
    });
  });
}

void clamp(const Clamp& op, int64_t begin, int64_t end) {
  visit(op.x.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const F32 d;
    const T* x = op.x.data<T>();
    T* y = op.y.data<T>();
    const auto limit = hn::Set(d, static_cast<float>(op.limit));
    sweep_all<T>(d, begin, end, [=](int64_t i, auto access) HWY_ATTR {
      const auto value = access.load(d, x + i);
      access.store(d, hn::IfThenElse(hn::Gt(hn::Abs(value), limit), hn::CopySign(limit, value), value), y + i);
    });
  });
}

void clamp_backward(const ClampBackward& op, int64_t begin, int64_t end) {
  visit(op.x.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const F32 d;
    const T *x = op.x.data<T>(), *dy = op.dy.data<T>();
    T* dx = op.dx.data<T>();
    const auto limit = hn::Set(d, static_cast<float>(op.limit));
    sweep_all<T>(d, begin, end, [=](int64_t i, auto access) HWY_ATTR {
      const auto outside = hn::Gt(hn::Abs(access.load(d, x + i)), limit);
      access.store(d, hn::IfThenZeroElse(outside, access.load(d, dy + i)), dx + i);
    });
  });
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {

HWY_EXPORT(softcap);
HWY_EXPORT(softcap_backward);
HWY_EXPORT(clamp);
HWY_EXPORT(clamp_backward);

void run(const Softcap& op) {
  if (op.x.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_elements(op.x.numel(), [&](int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(softcap)(op, begin, end); });
}

void run(const SoftcapBackward& op) {
  if (op.y.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_elements(op.y.numel(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(softcap_backward)(op, begin, end);
  });
}

void run(const Clamp& op) {
  if (op.x.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_elements(op.x.numel(), [&](int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(clamp)(op, begin, end); });
}

void run(const ClampBackward& op) {
  if (op.x.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_elements(op.x.numel(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(clamp_backward)(op, begin, end);
  });
}

}  // namespace nought::cpu
#endif
