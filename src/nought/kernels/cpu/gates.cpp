#include "nought/kernels/check.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/targets.h"
#include "nought/kernels/reference/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/gates.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/math-inl.h"
#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

void gate(const Gate& op, int64_t begin, int64_t end) {
  visit(op.x.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const F32 d;
    const T *x = op.x.data<T>(), *gates = op.gate.data<T>();
    T* y = op.y.data<T>();
    const bool silu = op.kind == GateKind::silu;
    sweep(d, begin, end, [=](int64_t i, auto access) HWY_ATTR {
      const auto g = access.load(d, gates + i), sigma = sigmoid(d, g);
      access.store(d, hn::Mul(access.load(d, x + i), silu ? hn::Mul(g, sigma) : sigma), y + i);
    });
  });
}

void gate_backward(const GateBackward& op, int64_t begin, int64_t end) {
  visit(op.x.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const F32 d;
    const T *x = op.x.data<T>(), *gates = op.gate.data<T>(), *dy = op.dy.data<T>();
    T *dx = op.dx.data<T>(), *d_gate = op.d_gate.data<T>();
    const bool silu = op.kind == GateKind::silu;
    sweep(d, begin, end, [=](int64_t i, auto access) HWY_ATTR {
      const auto g = access.load(d, gates + i), sigma = sigmoid(d, g);
      auto slope = hn::NegMulAdd(sigma, sigma, sigma);
      if (silu) slope = hn::MulAdd(g, slope, sigma);
      access.store(d, hn::Mul(hn::Mul(access.load(d, dy + i), access.load(d, x + i)), slope), d_gate + i);
    });
    sweep(d, begin, end, [=](int64_t i, auto access) HWY_ATTR {
      const auto g = access.load(d, gates + i), sigma = sigmoid(d, g);
      access.store(d, hn::Mul(access.load(d, dy + i), silu ? hn::Mul(g, sigma) : sigma), dx + i);
    });
  });
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {

HWY_EXPORT(gate);
HWY_EXPORT(gate_backward);

void run(const Gate& op) {
  if (op.x.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_elements(op.x.numel(), [&](int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(gate)(op, begin, end); });
}

void run(const GateBackward& op) {
  if (op.x.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_elements(op.x.numel(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(gate_backward)(op, begin, end);
  });
}

}  // namespace nought::cpu
#endif
