#include <array>
#include <exception>
#include <mutex>
#include <span>

#include "nought/kernels/check.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/targets.h"
#include "nought/kernels/reference/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/optimizers.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

HWY_INLINE hn::Vec<F32> constant(double value) { return hn::Set(F32(), static_cast<float>(value)); }

template <class G>
HWY_INLINE void update(const Adam& op, Interval range) {
  const F32 d;
  float *parameter = op.parameter.data<float>(), *exp_avg = op.exp_avg.data<float>();
  float* exp_avg_sq = op.exp_avg_sq.data<float>();
  const G* gradient = op.gradient.data<G>();
  const auto beta1 = constant(op.beta1), rest1 = constant(1 - op.beta1);
  const auto beta2 = constant(op.beta2), rest2 = constant(1 - op.beta2), eps = constant(op.eps);
  const auto step = constant(op.lr / op.bias1), inverse_root2 = constant(1 / std::sqrt(op.bias2));
  const auto gradient_scale = constant(op.gradient_scale);
  const auto keep = constant(op.decoupled_decay ? 1 - op.lr * op.weight_decay : 1);
  const auto decay = constant(op.decoupled_decay ? 0 : op.weight_decay);
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

template <class G>
HWY_INLINE void update(const Sgd& op, Interval range) {
  const F32 d;
  float* parameter = op.parameter.data<float>();
  float* buffer = op.momentum_buffer ? op.momentum_buffer.data<float>() : nullptr;
  const G* gradient = op.gradient.data<G>();
  const auto lr = constant(op.lr), decay = constant(op.weight_decay), gradient_scale = constant(op.gradient_scale);
  const auto momentum = constant(op.momentum);
  const auto kept = constant(op.first ? 0 : op.momentum), added = constant(op.first ? 1 : 1 - op.dampening);
  sweep(d, range.begin, range.end, [=, nesterov = op.nesterov](int64_t i, auto access) HWY_ATTR {
    const auto p = access.load(d, parameter + i);
    auto g = hn::MulAdd(decay, p, hn::Mul(access.load(d, gradient + i), gradient_scale));
    if (buffer != nullptr) {
      const auto b = hn::MulAdd(kept, access.load(d, buffer + i), hn::Mul(added, g));
      access.store(d, b, buffer + i);
      g = nesterov ? hn::MulAdd(momentum, b, g) : b;
    }
    access.store(d, hn::NegMulAdd(lr, g, p), parameter + i);
  });
}

template <class G>
HWY_INLINE void update(const Adagrad& op, Interval range) {
  const F32 d;
  float *parameter = op.parameter.data<float>(), *sum = op.sum.data<float>();
  const G* gradient = op.gradient.data<G>();
  const auto lr = constant(op.lr), decay = constant(op.weight_decay), eps = constant(op.eps);
  const auto gradient_scale = constant(op.gradient_scale);
  sweep(d, range.begin, range.end, [=](int64_t i, auto access) HWY_ATTR {
    const auto p = access.load(d, parameter + i);
    const auto g = hn::MulAdd(decay, p, hn::Mul(access.load(d, gradient + i), gradient_scale));
    const auto s = hn::MulAdd(g, g, access.load(d, sum + i));
    access.store(d, s, sum + i);
    access.store(d, hn::NegMulAdd(lr, hn::Div(g, hn::Add(hn::Sqrt(s), eps)), p), parameter + i);
  });
}

template <class G>
HWY_INLINE void update(const RmsProp& op, Interval range) {
  const F32 d;
  float *parameter = op.parameter.data<float>(), *square = op.square.data<float>();
  const G* gradient = op.gradient.data<G>();
  const auto lr = constant(op.lr), decay = constant(op.weight_decay), eps = constant(op.eps);
  const auto kept = constant(op.alpha), added = constant(1 - op.alpha);
  const auto gradient_scale = constant(op.gradient_scale);
  sweep(d, range.begin, range.end, [=](int64_t i, auto access) HWY_ATTR {
    const auto p = access.load(d, parameter + i);
    const auto g = hn::MulAdd(decay, p, hn::Mul(access.load(d, gradient + i), gradient_scale));
    const auto s = hn::MulAdd(kept, access.load(d, square + i), hn::Mul(added, hn::Mul(g, g)));
    access.store(d, s, square + i);
    access.store(d, hn::NegMulAdd(lr, hn::Div(g, hn::Add(hn::Sqrt(s), eps)), p), parameter + i);
  });
}

template <class G>
HWY_INLINE void update(const Lion& op, Interval range) {
  const F32 d;
  float *parameter = op.parameter.data<float>(), *exp_avg = op.exp_avg.data<float>();
  const G* gradient = op.gradient.data<G>();
  const auto beta1 = constant(op.beta1), rest1 = constant(1 - op.beta1);
  const auto beta2 = constant(op.beta2), rest2 = constant(1 - op.beta2);
  const auto step = constant(op.lr), keep = constant(1 - op.lr * op.weight_decay);
  const auto gradient_scale = constant(op.gradient_scale), one = constant(1), zero = hn::Zero(d);
  sweep(d, range.begin, range.end, [=](int64_t i, auto access) HWY_ATTR {
    const auto g = hn::Mul(access.load(d, gradient + i), gradient_scale), m = access.load(d, exp_avg + i);
    const auto c = hn::MulAdd(beta1, m, hn::Mul(rest1, g));
    const auto sign = hn::IfThenElse(hn::Ne(c, zero), hn::CopySign(one, c), zero);
    const auto direction = hn::IfThenElse(hn::Eq(c, c), sign, c);  // NaN stays
    access.store(d, hn::NegMulAdd(step, direction, hn::Mul(access.load(d, parameter + i), keep)), parameter + i);
    access.store(d, hn::MulAdd(beta2, m, hn::Mul(rest2, g)), exp_avg + i);
  });
}

template <class G>
HWY_INLINE void update(const LambDirection& op, Interval range) {
  const F32 d;
  const float* parameter = op.parameter.data<float>();
  float *exp_avg = op.exp_avg.data<float>(), *exp_avg_sq = op.exp_avg_sq.data<float>();
  float* direction = op.direction.data<float>();
  const G* gradient = op.gradient.data<G>();
  const auto beta1 = constant(op.beta1), rest1 = constant(1 - op.beta1);
  const auto beta2 = constant(op.beta2), rest2 = constant(1 - op.beta2);
  const auto inverse1 = constant(1 / op.bias1), inverse_root2 = constant(1 / std::sqrt(op.bias2));
  const auto eps = constant(op.eps), decay = constant(op.weight_decay), gradient_scale = constant(op.gradient_scale);
  sweep(d, range.begin, range.end, [=](int64_t i, auto access) HWY_ATTR {
    const auto g = hn::Mul(access.load(d, gradient + i), gradient_scale);
    const auto m = hn::MulAdd(beta1, access.load(d, exp_avg + i), hn::Mul(rest1, g));
    const auto v = hn::MulAdd(beta2, access.load(d, exp_avg_sq + i), hn::Mul(rest2, hn::Mul(g, g)));
    access.store(d, m, exp_avg + i);
    access.store(d, v, exp_avg_sq + i);
    const auto adam = hn::Div(hn::Mul(m, inverse1), hn::MulAdd(hn::Sqrt(v), inverse_root2, eps));
    access.store(d, hn::MulAdd(decay, access.load(d, parameter + i), adam), direction + i);
  });
}

template <class G>
HWY_INLINE void update(const MomentumDirection& op, Interval range) {
  const F32 d;
  float *buffer = op.momentum_buffer.data<float>(), *direction = op.direction.data<float>();
  const G* gradient = op.gradient.data<G>();
  const auto momentum = constant(op.momentum), rest = constant(1 - op.momentum);
  const auto gradient_scale = constant(op.gradient_scale);
  sweep(d, range.begin, range.end, [=, nesterov = op.nesterov](int64_t i, auto access) HWY_ATTR {
    const auto share = hn::Mul(rest, hn::Mul(access.load(d, gradient + i), gradient_scale));
    const auto b = hn::MulAdd(momentum, access.load(d, buffer + i), share);
    access.store(d, b, buffer + i);
    access.store(d, nesterov ? hn::MulAdd(momentum, b, share) : b, direction + i);
  });
}

HWY_INLINE void apply(const ApplyDirection& op, Interval range) {
  const F32 d;
  float* parameter = op.parameter.data<float>();
  const float* direction = op.direction.data<float>();
  const auto step = constant(op.taken_step()), keep = constant(op.keep);
  sweep(d, range.begin, range.end, [=](int64_t i, auto access) HWY_ATTR {
    const auto p = hn::Mul(access.load(d, parameter + i), keep);
    access.store(d, hn::NegMulAdd(step, access.load(d, direction + i), p), parameter + i);
  });
}

/// Elements that are updated at once: they stay in the first-level cache.
constexpr int64_t kBlock = 2048;

template <class G>
HWY_INLINE void update(const CustomUpdate& op, Interval range) {
  const F32 d;
  const G* gradient = op.gradient.data<G>() + range.begin;
  const auto gradient_scale = constant(op.gradient_scale);
  HWY_ALIGN float scaled[kBlock];
  sweep(d, 0, range.size(), [=, scaled = &scaled[0]](int64_t i, auto access) HWY_ATTR {
    access.store(d, hn::Mul(access.load(d, gradient + i), gradient_scale), scaled + i);
  });
  const auto part = [&](const Tensor& tensor) {
    return std::span(tensor.data<float>() + range.begin, static_cast<size_t>(range.size()));
  };
  std::array<std::span<float>, CustomUpdate::kMostStates> states;
  for (size_t i = 0; i < op.states.size(); ++i) states[i] = part(op.states[i]);
  op.rule.update(
      {part(op.parameter), {scaled, static_cast<size_t>(range.size())}, std::span(states).first(op.states.size())});
}

void copy_parameter(const Tensor& parameter_tensor, const Tensor& copy_tensor, Interval range) {
  visit(copy_tensor.dtype(), [&](auto tag) HWY_ATTR {
    using C = typename decltype(tag)::type;
    const F32 d;
    const float* parameter = parameter_tensor.data<float>();
    C* narrow = copy_tensor.data<C>();
    sweep(d, range.begin, range.end,
          [=](int64_t i, auto access) HWY_ATTR { access.store(d, access.load(d, parameter + i), narrow + i); });
  });
}

/// Block by block, so that the 16-bit copy is rounded from parameters that are still in the first-level cache.
template <class Op>
HWY_INLINE void update_range(const Op& op, Interval range) {
  for (int64_t begin = range.begin; begin < range.end; begin += kBlock) {
    const Interval block{begin, std::min(range.end, begin + kBlock)};
    if constexpr (requires { op.gradient; }) {
      visit(op.gradient.dtype(), [&](auto tag) HWY_ATTR { update<typename decltype(tag)::type>(op, block); });
    } else {
      apply(op, block);
    }
    if constexpr (requires { op.parameter_copy; }) {
      if (op.parameter_copy) copy_parameter(op.parameter, op.parameter_copy, block);
    }
  }
}

void adam(const Adam& op, Interval range) { update_range(op, range); }
void sgd(const Sgd& op, Interval range) { update_range(op, range); }
void adagrad(const Adagrad& op, Interval range) { update_range(op, range); }
void rms_prop(const RmsProp& op, Interval range) { update_range(op, range); }
void lion(const Lion& op, Interval range) { update_range(op, range); }
void lamb_direction(const LambDirection& op, Interval range) { update_range(op, range); }
void momentum_direction(const MomentumDirection& op, Interval range) { update_range(op, range); }
void apply_direction(const ApplyDirection& op, Interval range) { update_range(op, range); }
void custom_update(const CustomUpdate& op, Interval range) { update_range(op, range); }

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {
namespace {

/// True where a tensor is f64, which the reference computes.
template <class Op>
bool is_wide(const Op& op) {
  bool wide = false;
  if constexpr (requires { op.gradient; }) wide = op.gradient.dtype() == DType::f64;
  if constexpr (requires { op.parameter_copy; })
    wide = wide || (op.parameter_copy && op.parameter_copy.dtype() == DType::f64);
  return wide;
}

template <class Op, class Update>
void run_update(const Op& op, int64_t numel, const Update& update) {
  if (is_wide(op)) return reference::run(op);
  check(op);
  parallel_elements(numel, [&](int64_t begin, int64_t end) { update({begin, end}); });
}

}  // namespace

HWY_EXPORT(adam);
HWY_EXPORT(sgd);
HWY_EXPORT(adagrad);
HWY_EXPORT(rms_prop);
HWY_EXPORT(lion);
HWY_EXPORT(lamb_direction);
HWY_EXPORT(momentum_direction);
HWY_EXPORT(apply_direction);
HWY_EXPORT(custom_update);

void run(const Adam& op) {
  run_update(op, op.parameter.numel(), [&](Interval range) { HWY_DYNAMIC_DISPATCH(adam)(op, range); });
}
void run(const Sgd& op) {
  run_update(op, op.parameter.numel(), [&](Interval range) { HWY_DYNAMIC_DISPATCH(sgd)(op, range); });
}
void run(const Adagrad& op) {
  run_update(op, op.parameter.numel(), [&](Interval range) { HWY_DYNAMIC_DISPATCH(adagrad)(op, range); });
}
void run(const RmsProp& op) {
  run_update(op, op.parameter.numel(), [&](Interval range) { HWY_DYNAMIC_DISPATCH(rms_prop)(op, range); });
}

void run(const Lion& op) {
  run_update(op, op.parameter.numel(), [&](Interval range) { HWY_DYNAMIC_DISPATCH(lion)(op, range); });
}
void run(const LambDirection& op) {
  run_update(op, op.parameter.numel(), [&](Interval range) { HWY_DYNAMIC_DISPATCH(lamb_direction)(op, range); });
}
void run(const MomentumDirection& op) {
  run_update(op, op.direction.numel(), [&](Interval range) { HWY_DYNAMIC_DISPATCH(momentum_direction)(op, range); });
}
void run(const ApplyDirection& op) {
  run_update(op, op.parameter.numel(), [&](Interval range) { HWY_DYNAMIC_DISPATCH(apply_direction)(op, range); });
}

/// No exception leaves the threads of a parallel loop: the first one waits for its end.
void run(const CustomUpdate& op) {
  std::exception_ptr thrown;
  std::once_flag once;
  run_update(op, op.parameter.numel(), [&](Interval range) {
    try {
      HWY_DYNAMIC_DISPATCH(custom_update)(op, range);
    } catch (...) {
      std::call_once(once, [&] { thrown = std::current_exception(); });
    }
  });
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace nought::cpu
#endif
