#include "nought/kernels/check.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/targets.h"
#include "nought/kernels/head_codes.h"
#include "nought/kernels/reference/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/heads.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

/// Calls f(from, to) with each head of the tokens.
template <class From, class To, class F>
HWY_INLINE void for_each_head(const CopyHeads& op, Interval tokens, F&& f) {
  for (int64_t t = tokens.begin; t < tokens.end; ++t)
    for (int64_t h = 0; h < op.num_heads; ++h)
      f(op.from.base.data<From>() + op.from.at(t, op.broadcast ? 0 : h, op.head_dim),
        op.to.base.data<To>() + op.to.at(t, h, op.head_dim));
}

void add_heads(const CopyHeads& op, Interval tokens) {
  visit(op.to.base.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const F32 d;
    for_each_head<T, T>(op, tokens, [&](const T* from, T* to) HWY_ATTR {
      sweep(d, 0, op.head_dim, [=](int64_t i, auto access) HWY_ATTR {
        access.store(d, hn::Add(access.load(d, to + i), access.load(d, from + i)), to + i);
      });
    });
  });
}

void sum_heads(const SumHeads& op, Interval tokens) {
  visit(op.to.base.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const F32 d;
    const int64_t stride = op.from.stride(op.head_dim), num_heads = op.num_heads;
    for (int64_t t = tokens.begin; t < tokens.end; ++t) {
      const T* from = op.from.base.data<T>() + op.from.at(t, 0, op.head_dim);
      T* to = op.to.base.data<T>() + op.to.at(t, 0, op.head_dim);
      sweep(d, 0, op.head_dim, [=](int64_t i, auto access) HWY_ATTR {
        auto sum = access.load(d, from + i);
        for (int64_t h = 1; h < num_heads; ++h) sum = hn::Add(sum, access.load(d, from + h * stride + i));
        access.store(d, sum, to + i);
      });
    }
  });
}

/// The heads of tokens in another dtype.
void round_heads(const CopyHeads& op, Interval tokens) {
  visit(op.from.base.dtype(), [&](auto from_tag) HWY_ATTR {
    using From = typename decltype(from_tag)::type;
    visit(op.to.base.dtype(), [&](auto to_tag) HWY_ATTR {
      using To = typename decltype(to_tag)::type;
      const F32 d;
      for_each_head<From, To>(op, tokens, [&](const From* from, To* to) HWY_ATTR {
        sweep(d, 0, op.head_dim,
              [=](int64_t i, auto access) HWY_ATTR { access.store(d, access.load(d, from + i), to + i); });
      });
    });
  });
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {

HWY_EXPORT(add_heads);
HWY_EXPORT(sum_heads);
HWY_EXPORT(round_heads);

namespace {

void copy_heads(const CopyHeads& op, Interval tokens) {
  const auto bytes = static_cast<int64_t>(size_of(op.to.base.dtype()));
  const auto* from = static_cast<const std::byte*>(op.from.base.raw());
  auto* to = static_cast<std::byte*>(op.to.base.raw());
  for (int64_t t = tokens.begin; t < tokens.end; ++t) {
    for (int64_t h = 0; h < op.num_heads; ++h) {
      std::memcpy(to + op.to.at(t, h, op.head_dim) * bytes,
                  from + op.from.at(t, op.broadcast ? 0 : h, op.head_dim) * bytes,
                  static_cast<size_t>(op.head_dim * bytes));
    }
  }
}

}  // namespace

void run(const CopyHeads& op) {
  if (op.to.base.dtype() == DType::f64 || op.from.base.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_rows(op.tokens, op.num_heads * op.head_dim, [&](int64_t begin, int64_t end) {
    if (op.accumulate) {
      HWY_DYNAMIC_DISPATCH(add_heads)(op, {begin, end});
    } else if (op.to.base.dtype() != op.from.base.dtype()) {
      HWY_DYNAMIC_DISPATCH(round_heads)(op, {begin, end});
    } else {
      copy_heads(op, {begin, end});
    }
  });
}

void run(const EncodeHeads& op) {
  check(op);
  parallel_rows(op.tokens, op.num_heads * op.head_dim, [&](int64_t begin, int64_t end) {
    encode_heads(op, {begin, end});
  });
}

void run(const SumHeads& op) {
  if (op.to.base.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_rows(op.tokens, op.num_heads * op.head_dim, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(sum_heads)(op, {begin, end});
  });
}

}  // namespace nought::cpu
#endif
