#include "nought/kernels/check.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/targets.h"
#include "nought/kernels/reference/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/short_conv.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/math-inl.h"
#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

/// A task goes over all tokens with so many channels: what it keeps of them stays in the first-level cache.
constexpr int64_t kChannels = 64;

/// One row of channels for each tap: those of the last tokens, in a ring.
struct Rows {
  HWY_ALIGN float values[kMostTaps][kChannels];

  void clear(int64_t taps, int64_t n) {
    for (int64_t j = 0; j < taps; ++j) std::fill(values[j], values[j] + n, 0.0f);
  }
};

/// The channels of a task. Token t of a span has place t + taps - 1 in the rings; those before it have 0 to taps - 2.
template <class T, class Op>
struct Task {
  Task(const Op& operation, int64_t begin, int64_t end)
      : op(operation), taps(op.weight.dim(-1)), all(op.weight.dim(0)), c(begin), n(end - begin) {
    for (int64_t i = 0; i < n; ++i) {
      bias[i] = op.bias ? static_cast<float>(op.bias.template data<T>()[c + i]) : 0.0f;
      for (int64_t j = 0; j < taps; ++j)
        weight.values[j][i] = static_cast<float>(op.weight.template data<T>()[(c + i) * taps + j]);
    }
  }
  /// Where the channels of a part of a row of x begin.
  int64_t at(int64_t token, int64_t part) const { return (token * (op.gated ? 3 : 1) + part) * all + c; }
  float* ring(Rows& rows, int64_t place) const { return rows.values[place % taps]; }

  /// Puts u of a token into its ring, and returns through `v` what the convolution gives.
  HWY_INLINE void convolve(int64_t token, int64_t place, float* v) {
    const F32 d;
    const T *x = op.x.template data<T>() + at(token, op.gated ? 2 : 0), *b = op.x.template data<T>() + at(token, 0);
    float* last = ring(u, place);
    if (op.gated) {
      sweep(d, 0, n, [=](int64_t i, auto access) HWY_ATTR {
        access.store(d, hn::Mul(access.load(d, b + i), access.load(d, x + i)), last + i);
      });
    } else {
      widen(x, n, last);
    }
    const float* of[kMostTaps];
    for (int64_t j = 0; j < taps; ++j) of[j] = ring(u, place - taps + 1 + j);
    const int64_t count = taps;
    sweep(d, 0, n, [=, this, &of](int64_t i, auto access) HWY_ATTR {
      auto sum = access.load(d, bias + i);
      for (int64_t j = 0; j < count; ++j)
        sum = hn::MulAdd(access.load(d, weight.values[j] + i), access.load(d, of[j] + i), sum);
      access.store(d, sum, v + i);
    });
  }

  const Op& op;
  int64_t taps, all, c, n;
  HWY_ALIGN float bias[kChannels];
  Rows weight, u;
};

template <class T>
HWY_NOINLINE void forward(const ShortConv& op, int64_t begin, int64_t end) {
  const F32 d;
  Task<T, ShortConv> task(op, begin, end);
  HWY_ALIGN float v[kChannels];
  const float* const convolved = v;
  const int64_t kept = task.taps - 1, n = task.n;
  for (const StateSpan& span : op.spans) {
    T* const states = op.states ? op.states.data<T>() + span.state * kept * task.all + task.c : nullptr;
    task.u.clear(task.taps, n);
    for (int64_t i = 0; i < kept && span.continues; ++i) widen(states + i * task.all, n, task.ring(task.u, i));
    for (int64_t t = 0; t < span.length; ++t) {
      const int64_t token = span.begin + t;
      task.convolve(token, t + kept, v);
      T* const y = op.y.data<T>() + token * task.all + task.c;
      const T* const gate = op.x.data<T>() + task.at(token, op.gated ? 1 : 0);
      if (op.gated) {
        sweep(d, 0, n, [=](int64_t i, auto access) HWY_ATTR {
          access.store(d, hn::Mul(access.load(d, gate + i), access.load(d, convolved + i)), y + i);
        });
      } else {
        sweep(d, 0, n, [=](int64_t i, auto access) HWY_ATTR {
          const auto x = access.load(d, convolved + i);
          access.store(d, hn::Div(x, sigmoid_divisor(d, x)), y + i);
        });
      }
    }
    for (int64_t i = 0; i < kept && states != nullptr; ++i) {
      const float* const last = task.ring(task.u, span.length + i);
      T* const to = states + i * task.all;
      sweep(d, 0, n, [=](int64_t j, auto access) HWY_ATTR { access.store(d, access.load(d, last + j), to + j); });
    }
  }
}

template <class T>
struct BackwardTask : Task<T, ShortConvBackward> {
  using Base = Task<T, ShortConvBackward>;
  using Base::all, Base::at, Base::c, Base::n, Base::op, Base::ring, Base::taps, Base::u, Base::weight;

  BackwardTask(const ShortConvBackward& operation, int64_t begin, int64_t end) : Base(operation, begin, end) {
    d_weight.clear(taps, n);
    std::fill(d_bias, d_bias + n, 0.0f);
  }
  /// The gradient of v of a token, which goes into its ring, and that of its gate.
  HWY_INLINE void of_output(int64_t token, int64_t place, const float* v) {
    const F32 d;
    const T* const dy = op.dy.template data<T>() + token * all + c;
    const T* const gate = op.x.template data<T>() + at(token, op.gated ? 1 : 0);
    float* const to = ring(dv, place);
    if (op.gated) {
      T* const d_gate = op.dx.template data<T>() + at(token, 1);
      const bool adds = op.accumulate_x;
      sweep(d, 0, n, [=](int64_t i, auto access) HWY_ATTR {
        const auto given = access.load(d, dy + i);
        access.store(d, hn::Mul(given, access.load(d, gate + i)), to + i);
        const auto own = hn::Mul(given, access.load(d, v + i));
        access.store(d, adds ? hn::Add(access.load(d, d_gate + i), own) : own, d_gate + i);
      });
    } else {
      const auto one = hn::Set(d, 1.0f);
      sweep(d, 0, n, [=](int64_t i, auto access) HWY_ATTR {
        const auto x = access.load(d, v + i), s = hn::Div(one, sigmoid_divisor(d, x));
        const auto slope = hn::MulAdd(hn::Mul(x, s), hn::Sub(one, s), s);
        access.store(d, hn::Mul(access.load(d, dy + i), slope), to + i);
      });
    }
  }
  HWY_INLINE void add_to_parameters(int64_t place) {
    const F32 d;
    const float* const given = ring(dv, place);
    float* const sums = d_bias;
    sweep(d, 0, n, [=](int64_t i, auto access) HWY_ATTR {
      access.store(d, hn::Add(access.load(d, sums + i), access.load(d, given + i)), sums + i);
    });
    for (int64_t j = 0; j < taps; ++j) {
      const float* const before = ring(u, place - taps + 1 + j);
      float* const into = d_weight.values[j];
      sweep(d, 0, n, [=](int64_t i, auto access) HWY_ATTR {
        access.store(d, hn::MulAdd(access.load(d, given + i), access.load(d, before + i), access.load(d, into + i)),
                     into + i);
      });
    }
  }
  /// The gradient of what was convolved, of the token at `place` with those of v from there on.
  HWY_INLINE void of_input(int64_t token, int64_t place) {
    const F32 d;
    const float* of[kMostTaps];
    for (int64_t j = 0; j < taps; ++j) of[j] = ring(dv, place + taps - 1 - j);
    HWY_ALIGN float du[kChannels];
    float* const sum = du;
    const int64_t count = taps;
    sweep(d, 0, n, [=, this, &of](int64_t i, auto access) HWY_ATTR {
      auto total = hn::Zero(d);
      for (int64_t j = 0; j < count; ++j)
        total = hn::MulAdd(access.load(d, weight.values[j] + i), access.load(d, of[j] + i), total);
      access.store(d, total, sum + i);
    });
    const bool adds = op.accumulate_x;
    const auto give = [&](int64_t part, const T* factor) HWY_ATTR {
      T* const to = op.dx.template data<T>() + at(token, part);
      sweep(d, 0, n, [=](int64_t i, auto access) HWY_ATTR {
        auto value = access.load(d, sum + i);
        if (factor != nullptr) value = hn::Mul(value, access.load(d, factor + i));
        access.store(d, adds ? hn::Add(access.load(d, to + i), value) : value, to + i);
      });
    };
    const T* const x = op.x.template data<T>();
    if (!op.gated) return give(0, nullptr);
    give(0, x + at(token, 2));
    give(2, x + at(token, 0));
  }
  void put_parameters() const {
    const bool adds = op.accumulate_weight;
    visit(op.d_weight.dtype(), [&](auto tag) {
      using D = typename decltype(tag)::type;
      const auto put = [&](const Tensor& into, int64_t at, float value) {
        D& element = into.data<D>()[at];
        element = static_cast<D>(adds ? static_cast<float>(element) + value : value);
      };
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < taps; ++j) put(op.d_weight, (c + i) * taps + j, d_weight.values[j][i]);
        if (op.d_bias) put(op.d_bias, c + i, d_bias[i]);
      }
    });
  }

  Rows dv, d_weight;
  HWY_ALIGN float d_bias[kChannels];
};

template <class T>
HWY_NOINLINE void backward(const ShortConvBackward& op, int64_t begin, int64_t end) {
  BackwardTask<T> task(op, begin, end);
  HWY_ALIGN float v[kChannels];
  const int64_t kept = task.taps - 1;
  for (const StateSpan& span : op.spans) {
    task.u.clear(task.taps, task.n);
    task.dv.clear(task.taps, task.n);
    for (int64_t t = 0; t < span.length + kept; ++t) {
      if (t < span.length) {
        task.convolve(span.begin + t, t + kept, v);
        task.of_output(span.begin + t, t + kept, v);
        task.add_to_parameters(t + kept);
      } else {
        std::fill(task.ring(task.dv, t + kept), task.ring(task.dv, t + kept) + task.n, 0.0f);
      }
      if (t >= kept) task.of_input(span.begin + t - kept, t);
    }
  }
  task.put_parameters();
}

void short_conv(const ShortConv& op, int64_t begin, int64_t end) {
  visit(op.x.dtype(), [&](auto tag) { forward<typename decltype(tag)::type>(op, begin, end); });
}

void short_conv_backward(const ShortConvBackward& op, int64_t begin, int64_t end) {
  visit(op.x.dtype(), [&](auto tag) { backward<typename decltype(tag)::type>(op, begin, end); });
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {

HWY_EXPORT(short_conv);
HWY_EXPORT(short_conv_backward);

namespace {

/// Calls body(begin, end) for the channels of each task: each adds up its own over all tokens.
template <class Op, class Body>
void in_tasks(const Op& op, const Body& body) {
  constexpr int64_t kChannelsOfTask = 64;
  const int64_t channels = op.weight.dim(0);
  parallel_for(ceil_div(channels, kChannelsOfTask), kChannelsOfTask * op.x.rows() * op.weight.dim(-1), 1,
               [&](int64_t first, int64_t last) {
                 for (int64_t i = first; i < last; ++i)
                   body(i * kChannelsOfTask, std::min(channels, (i + 1) * kChannelsOfTask));
               });
}

}  // namespace

void run(const ShortConv& op) {
  if (op.x.dtype() == DType::f64) return reference::run(op);
  check(op);
  in_tasks(op, [&](int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(short_conv)(op, begin, end); });
}

void run(const ShortConvBackward& op) {
  if (op.x.dtype() == DType::f64) return reference::run(op);
  check(op);
  in_tasks(op, [&](int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(short_conv_backward)(op, begin, end); });
}

}  // namespace nought::cpu
#endif
