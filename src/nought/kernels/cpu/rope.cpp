#include "nought/kernels/check.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/targets.h"
#include "nought/kernels/reference/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/rope.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

/// Turns (a, b) by the angle whose cosine and sine are given.
template <class V>
HWY_INLINE void rotate(V& a, V& b, V cos, V sin) {
  const V turned = hn::NegMulAdd(b, sin, hn::Mul(a, cos));
  b = hn::MulAdd(a, sin, hn::Mul(b, cos));
  a = turned;
}

/// Pairs (i, i + pairs) of one head.
template <class T>
HWY_INLINE void rotate_halves(T* x, int64_t pairs, const float* cos, const float* sin, float direction) {
  const F32 d;
  sweep(d, 0, pairs, [=](int64_t i, auto access) HWY_ATTR {
    auto a = access.load(d, x + i), b = access.load(d, x + pairs + i);
    rotate(a, b, access.load(d, cos + i), hn::Mul(access.load(d, sin + i), hn::Set(d, direction)));
    access.store(d, a, x + i);
    access.store(d, b, x + pairs + i);
  });
}

/// Pairs (2i, 2i + 1) of one head: widened side by side, taken apart, turned and put back.
template <class T>
HWY_INLINE void rotate_neighbours(T* x, int64_t pairs, const float* cos, const float* sin, float direction) {
  const F32 d;
  sweep(d, 0, pairs, [=](int64_t i, auto access) HWY_ATTR {
    HWY_ALIGN float both[2 * hn::MaxLanes(F32())] = {};
    float* wide = both;
    T* narrow = x + 2 * i;
    const int64_t count = 2 * static_cast<int64_t>(access.lanes(d));
    sweep(d, 0, count, [=](int64_t j, auto part) HWY_ATTR { part.store(d, part.load(d, narrow + j), wide + j); });
    hn::Vec<F32> a, b;
    hn::LoadInterleaved2(d, wide, a, b);
    rotate(a, b, access.load(d, cos + i), hn::Mul(access.load(d, sin + i), hn::Set(d, direction)));
    hn::StoreInterleaved2(a, b, d, wide);
    sweep(d, 0, count, [=](int64_t j, auto part) HWY_ATTR { part.store(d, part.load(d, wide + j), narrow + j); });
  });
}

void rope(const Rope& op, Interval tokens) {
  visit(op.x.base.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const int64_t pairs = op.rotary_dim / 2;
    const float direction = op.inverse ? -1.0f : 1.0f;
    for (int64_t token = tokens.begin; token < tokens.end; ++token) {
      const int64_t position = op.positions.data<int32_t>()[token];
      const float *cos = op.cos.data<float>() + position * pairs, *sin = op.sin.data<float>() + position * pairs;
      T* x = op.x.base.data<T>() + op.x.offset + token * op.x.token_stride;
      for (int64_t head = 0; head < op.num_heads; ++head, x += op.x.stride(op.head_dim)) {
        if (op.interleaved) {
          rotate_neighbours(x, pairs, cos, sin, direction);
        } else {
          rotate_halves(x, pairs, cos, sin, direction);
        }
      }
    }
  });
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {

HWY_EXPORT(rope);

void run(const Rope& op) {
  if (op.x.base.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_rows(op.positions.numel(), op.num_heads * op.rotary_dim, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(rope)(op, {begin, end});
  });
}

}  // namespace nought::cpu
#endif
