#include "nought/kernels/check.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/targets.h"
#include "nought/kernels/reference/loops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/elementwise.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

void add(const Add& op, int64_t begin, int64_t end) {
  visit(op.out.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const F32 d;
    const T *a = op.a.data<T>(), *b = op.b.data<T>();
    T* out = op.out.data<T>();
    sweep_all<T>(d, begin, end, [=](int64_t i, auto access) HWY_ATTR {
      access.store(d, hn::Add(access.load(d, a + i), access.load(d, b + i)), out + i);
    });
  });
}

void scale(const Scale& op, int64_t begin, int64_t end) {
  visit(op.x.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const F32 d;
    T* x = op.x.data<T>();
    const auto factor = hn::Set(d, static_cast<float>(op.taken_factor()));
    sweep_all<T>(d, begin, end, [=](int64_t i, auto access) HWY_ATTR {
      access.store(d, hn::Mul(access.load(d, x + i), factor), x + i);
    });
  });
}

void cast(const Cast& op, int64_t begin, int64_t end) {
  visit(op.x.dtype(), [&](auto from) HWY_ATTR {
    visit(op.y.dtype(), [&](auto to) HWY_ATTR {
      using X = typename decltype(from)::type;
      using Y = typename decltype(to)::type;
      const F32 d;
      const X* x = op.x.data<X>();
      Y* y = op.y.data<Y>();
      sweep(d, begin, end, [=](int64_t i, auto access) HWY_ATTR { access.store(d, access.load(d, x + i), y + i); });
    });
  });
}

void add_to(const AddTo& op, int64_t begin, int64_t end) {
  visit(op.x.dtype(), [&](auto from) HWY_ATTR {
    visit(op.into.dtype(), [&](auto to) HWY_ATTR {
      using X = typename decltype(from)::type;
      using Y = typename decltype(to)::type;
      const F32 d;
      const X* x = op.x.data<X>();
      Y* into = op.into.data<Y>();
      sweep(d, begin, end, [=](int64_t i, auto access) HWY_ATTR {
        access.store(d, hn::Add(access.load(d, into + i), access.load(d, x + i)), into + i);
      });
    });
  });
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {

HWY_EXPORT(add);
HWY_EXPORT(scale);
HWY_EXPORT(cast);
HWY_EXPORT(add_to);

void run(const Add& op) {
  if (op.out.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_elements(op.out.numel(), [&](int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(add)(op, begin, end); });
}

void run(const Scale& op) {
  if (op.x.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_elements(op.x.numel(), [&](int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(scale)(op, begin, end); });
}

void run(const Fill& op) {
  check(op);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* x = op.x.data<T>();
    const T value = rounded<T>(op.value);
    parallel_elements(op.x.numel(), [=](int64_t begin, int64_t end) { std::fill(x + begin, x + end, value); });
  });
}

void run(const Cast& op) {
  if (op.x.dtype() == DType::f64 || op.y.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_elements(op.x.numel(), [&](int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(cast)(op, begin, end); });
}

void run(const AddTo& op) {
  if (op.x.dtype() == DType::f64 || op.into.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_elements(op.x.numel(), [&](int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(add_to)(op, begin, end); });
}

}  // namespace nought::cpu
#endif
