#include <vector>

#include "nought/kernels/check.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/targets.h"
#include "nought/kernels/reference/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/magnitudes.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

void scale_columns(const ScaleColumns& op, int64_t begin, int64_t end) {
  visit(op.x.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const F32 d;
    const int64_t n = op.x.dim(-1);
    const float* factors = op.factors.data<float>();
    const T* bias = op.bias ? op.bias.data<T>() : nullptr;
    const auto offset = hn::Set(d, static_cast<float>(op.offset));
    const bool accumulate = op.accumulate;
    for (int64_t i = begin; i < end; ++i) {
      const T* x = op.x.data<T>() + i * n;
      T* y = op.y.data<T>() + i * n;
      sweep(d, 0, n, [=](int64_t j, auto access) HWY_ATTR {
        auto value = hn::Mul(access.load(d, x + j), hn::Sub(access.load(d, factors + j), offset));
        if (bias != nullptr) value = hn::Add(value, access.load(d, bias + j));
        if (accumulate) value = hn::Add(access.load(d, y + j), value);
        access.store(d, value, y + j);
      });
    }
  });
}

/// sums[j] = the sum of a[i, j] * b[i, j] over `rows`.
void dot_columns(const DotColumns& op, Interval rows, float* sums) {
  visit(op.a.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const F32 d;
    const int64_t n = op.a.dim(-1);
    std::fill(sums, sums + n, 0.0f);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const T *a = op.a.data<T>() + row * n, *b = op.b.data<T>() + row * n;
      sweep(d, 0, n, [=](int64_t j, auto access) HWY_ATTR {
        access.store(d, hn::MulAdd(access.load(d, a + j), access.load(d, b + j), access.load(d, sums + j)), sums + j);
      });
    }
  });
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {

HWY_EXPORT(scale_columns);
HWY_EXPORT(dot_columns);

void run(const ScaleColumns& op) {
  if (op.x.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_rows(op.x.rows(), op.x.dim(-1), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(scale_columns)(op, begin, end);
  });
}

void run(const DotColumns& op) {
  if (op.a.dtype() == DType::f64) return reference::run(op);
  check(op);
  const int64_t n = op.a.dim(-1);
  const RowChunks chunks(op.a.rows());
  std::vector<float> sums(static_cast<size_t>(chunks.count * n));
  parallel_for(chunks.count, chunks.chunk * n, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) HWY_DYNAMIC_DISPATCH(dot_columns)(op, chunks[i], sums.data() + i * n);
  });
  float* out = op.out.data<float>();
  const float* divisors = op.divisors ? op.divisors.data<float>() : nullptr;
  for (int64_t j = 0; j < n; ++j) {
    float sum = 0;
    for (int64_t i = 0; i < chunks.count; ++i) sum += sums[static_cast<size_t>(i * n + j)];
    out[j] = divisors != nullptr ? sum / divisors[j] : sum;
  }
}

/// As small as the factors of an adapter.
void run(const LowRankNorms& op) { reference::run(op); }

}  // namespace nought::cpu
#endif
