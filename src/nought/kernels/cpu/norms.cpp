#include "nought/kernels/check.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/partials.h"
#include "nought/kernels/cpu/targets.h"
#include "nought/kernels/reference/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/norms.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

template <class T>
HWY_INLINE void rms_norm_row(const RmsNorm& op, int64_t row) {
  const F32 d;
  const int64_t n = op.x.dim(-1);
  const T *x = op.x.data<T>() + row * n, *weight = op.weight.data<T>();
  T* y = op.y.data<T>() + row * n;
  Lanes4<F32> squares(d, 0);
  reduce(d, 0, n, squares, [=](int64_t i, auto access, auto& sum) HWY_ATTR {
    const auto v = access.load(d, x + i);
    sum = hn::MulAdd(v, v, sum);
  });
  const float rstd = 1 / std::sqrt(squares.sum(d) / static_cast<float>(n) + static_cast<float>(op.eps));
  op.rstd.data<float>()[row] = rstd;
  const auto scale = hn::Set(d, rstd), offset = hn::Set(d, static_cast<float>(op.weight_offset));
  sweep(d, 0, n, [=](int64_t i, auto access) HWY_ATTR {
    const auto factor = hn::Add(access.load(d, weight + i), offset);
    access.store(d, hn::Mul(hn::Mul(access.load(d, x + i), scale), factor), y + i);
  });
}

/// d_weight: [n] fp32, added to.
template <class T>
HWY_INLINE void rms_norm_backward_row(const RmsNormBackward& op, int64_t row, float* d_weight) {
  const F32 d;
  const int64_t n = op.x.dim(-1);
  const T *x = op.x.data<T>() + row * n, *dy = op.dy.data<T>() + row * n, *weight = op.weight.data<T>();
  T* dx = op.dx.data<T>() + row * n;
  const auto offset = hn::Set(d, static_cast<float>(op.weight_offset));
  Lanes4<F32> products(d, 0);
  reduce(d, 0, n, products, [=](int64_t i, auto access, auto& sum) HWY_ATTR {
    const auto scaled = hn::Mul(access.load(d, dy + i), hn::Add(access.load(d, weight + i), offset));
    sum = hn::MulAdd(scaled, access.load(d, x + i), sum);
  });
  const float inverse = op.rstd.data<float>()[row];
  const auto rstd = hn::Set(d, inverse);
  const auto projection = hn::Set(d, products.sum(d) * inverse / static_cast<float>(n));
  sweep(d, 0, n, [=, accumulate = op.accumulate_x](int64_t i, auto access) HWY_ATTR {
    const auto normal = hn::Mul(access.load(d, x + i), rstd), upstream = access.load(d, dy + i);
    const auto scaled = hn::Mul(upstream, hn::Add(access.load(d, weight + i), offset));
    auto gradient = hn::Mul(hn::NegMulAdd(normal, projection, scaled), rstd);
    if (accumulate) gradient = hn::Add(access.load(d, dx + i), gradient);
    access.store(d, gradient, dx + i);
    access.store(d, hn::MulAdd(upstream, normal, access.load(d, d_weight + i)), d_weight + i);
  });
}

template <class T>
HWY_INLINE void layer_norm_row(const LayerNorm& op, int64_t row) {
  const F32 d;
  const int64_t n = op.x.dim(-1);
  const T *x = op.x.data<T>() + row * n, *weight = op.weight.data<T>(), *bias = op.bias.data<T>();
  T* y = op.y.data<T>() + row * n;
  Lanes4<F32> sums(d, 0), squares(d, 0);
  reduce(d, 0, n, sums, [=](int64_t i, auto access, auto& sum) HWY_ATTR { sum = hn::Add(access.load(d, x + i), sum); });
  const float average = sums.sum(d) / static_cast<float>(n);
  const auto mean = hn::Set(d, average);
  reduce(d, 0, n, squares, [=](int64_t i, auto access, auto& sum) HWY_ATTR {
    const auto v = access.only(d, hn::Sub(access.load(d, x + i), mean));
    sum = hn::MulAdd(v, v, sum);
  });
  const float inverse = 1 / std::sqrt(squares.sum(d) / static_cast<float>(n) + static_cast<float>(op.eps));
  op.mean.data<float>()[row] = average;
  op.rstd.data<float>()[row] = inverse;
  const auto rstd = hn::Set(d, inverse);
  sweep(d, 0, n, [=](int64_t i, auto access) HWY_ATTR {
    const auto normal = hn::Mul(hn::Sub(access.load(d, x + i), mean), rstd);
    access.store(d, hn::MulAdd(normal, access.load(d, weight + i), access.load(d, bias + i)), y + i);
  });
}

/// d_weight, d_bias: [n] fp32, added to.
template <class T>
HWY_INLINE void layer_norm_backward_row(const LayerNormBackward& op, int64_t row, float* d_weight, float* d_bias) {
  const F32 d;
  const int64_t n = op.x.dim(-1);
  const T *x = op.x.data<T>() + row * n, *dy = op.dy.data<T>() + row * n, *weight = op.weight.data<T>();
  T* dx = op.dx.data<T>() + row * n;
  const auto mean = hn::Set(d, op.mean.data<float>()[row]), rstd = hn::Set(d, op.rstd.data<float>()[row]);
  Lanes4<F32> sums(d, 0), products(d, 0);
  reduce(d, 0, n, sums, [=](int64_t i, auto access, auto& sum) HWY_ATTR {
    sum = hn::MulAdd(access.load(d, dy + i), access.load(d, weight + i), sum);
  });
  reduce(d, 0, n, products, [=](int64_t i, auto access, auto& sum) HWY_ATTR {
    const auto normal = hn::Mul(hn::Sub(access.load(d, x + i), mean), rstd);
    sum = hn::MulAdd(hn::Mul(access.load(d, dy + i), access.load(d, weight + i)), normal, sum);
  });
  const auto shift = hn::Set(d, sums.sum(d) / static_cast<float>(n));
  const auto projection = hn::Set(d, products.sum(d) / static_cast<float>(n));
  sweep(d, 0, n, [=, accumulate = op.accumulate_x](int64_t i, auto access) HWY_ATTR {
    const auto normal = hn::Mul(hn::Sub(access.load(d, x + i), mean), rstd), upstream = access.load(d, dy + i);
    const auto centred = hn::Sub(hn::Mul(upstream, access.load(d, weight + i)), shift);
    auto gradient = hn::Mul(hn::NegMulAdd(normal, projection, centred), rstd);
    if (accumulate) gradient = hn::Add(access.load(d, dx + i), gradient);
    access.store(d, gradient, dx + i);
    access.store(d, hn::MulAdd(upstream, normal, access.load(d, d_weight + i)), d_weight + i);
    access.store(d, hn::Add(upstream, access.load(d, d_bias + i)), d_bias + i);
  });
}

void rms_norm(const RmsNorm& op, Interval rows) {
  visit(op.x.dtype(), [&](auto tag) HWY_ATTR {
    for (int64_t row = rows.begin; row < rows.end; ++row) rms_norm_row<typename decltype(tag)::type>(op, row);
  });
}

void rms_norm_backward(const RmsNormBackward& op, Interval rows, float* d_weight) {
  std::fill(d_weight, d_weight + op.x.dim(-1), 0.0f);
  visit(op.x.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    for (int64_t row = rows.begin; row < rows.end; ++row) rms_norm_backward_row<T>(op, row, d_weight);
  });
}

void layer_norm(const LayerNorm& op, Interval rows) {
  visit(op.x.dtype(), [&](auto tag) HWY_ATTR {
    for (int64_t row = rows.begin; row < rows.end; ++row) layer_norm_row<typename decltype(tag)::type>(op, row);
  });
}

void layer_norm_backward(const LayerNormBackward& op, Interval rows, float* d_weight, float* d_bias) {
  std::fill(d_weight, d_weight + op.x.dim(-1), 0.0f);
  std::fill(d_bias, d_bias + op.x.dim(-1), 0.0f);
  visit(op.x.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    for (int64_t row = rows.begin; row < rows.end; ++row) layer_norm_backward_row<T>(op, row, d_weight, d_bias);
  });
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {

HWY_EXPORT(rms_norm);
HWY_EXPORT(rms_norm_backward);
HWY_EXPORT(layer_norm);
HWY_EXPORT(layer_norm_backward);

void run(const RmsNorm& op) {
  if (op.x.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_rows(op.x.rows(), op.x.dim(-1), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(rms_norm)(op, {begin, end});
  });
}

void run(const RmsNormBackward& op) {
  if (op.x.dtype() == DType::f64) return reference::run(op);
  check(op);
  const int64_t n = op.x.dim(-1);
  const Partials d_weight(op.x.rows(), n);
  const RowChunks& chunks = d_weight.chunks();
  parallel_rows(chunks.count, chunks.chunk * n, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      HWY_DYNAMIC_DISPATCH(rms_norm_backward)(op, chunks[i], d_weight.row(i));
    }
  });
  d_weight.combine(op.d_weight, op.accumulate_weight);
}

void run(const LayerNorm& op) {
  if (op.x.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_rows(op.x.rows(), op.x.dim(-1), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(layer_norm)(op, {begin, end});
  });
}

void run(const LayerNormBackward& op) {
  if (op.x.dtype() == DType::f64) return reference::run(op);
  check(op);
  const int64_t n = op.x.dim(-1);
  const Partials d_weight(op.x.rows(), n), d_bias(op.x.rows(), n);
  const RowChunks& chunks = d_weight.chunks();
  parallel_rows(chunks.count, chunks.chunk * n, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      HWY_DYNAMIC_DISPATCH(layer_norm_backward)(op, chunks[i], d_weight.row(i), d_bias.row(i));
    }
  });
  d_weight.combine(op.d_weight, op.accumulate_weight);
  d_bias.combine(op.d_bias, op.accumulate_weight);
}

}  // namespace nought::cpu
#endif
