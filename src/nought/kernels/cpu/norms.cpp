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

// A row is read again while it is in the first-level cache. The passes take turns in what they ask of memory: those
// that only read ask for the lines that will be written, and those that write ask for the next row.

/// The operands of one row of a norm, and how far the next row is.
template <class T>
struct Row {
  template <class Op>
  Row(const Op& op, int64_t row, int64_t last_row)
      : n(op.x.dim(-1)),
        next(row + 1 < last_row ? n : 0),
        x(op.x.template data<T>() + row * n),
        weight(op.weight.template data<T>()) {}

  int64_t n, next;
  const T *x, *weight;
};

template <class T>
HWY_INLINE void rms_norm_row(const RmsNorm& op, int64_t row, int64_t last_row) {
  const F32 d;
  const Row<T> in(op, row, last_row);
  T* y = op.y.data<T>() + row * in.n;
  float squares;
  if (op.squares) {
    squares = op.squares.data<float>()[row];
  } else {
    Lanes4<F32> sums(d, 0);
    reduce_all<T>(d, 0, in.n, sums, [=](int64_t i, auto access, auto& sum) HWY_ATTR {
      access.prefetch(y + i);
      const auto v = access.load(d, in.x + i);
      sum = hn::MulAdd(v, v, sum);
    });
    squares = sums.sum(d);
  }
  const int64_t width = op.squares ? op.width : in.n;
  const float rstd = 1 / std::sqrt(squares / static_cast<float>(width) + static_cast<float>(op.eps));
  op.rstd.data<float>()[row] = rstd;
  const auto scale = hn::Set(d, rstd), offset = hn::Set(d, static_cast<float>(op.weight_offset));
  sweep_all<T>(d, 0, in.n, [=](int64_t i, auto access) HWY_ATTR {
    access.prefetch(in.x + in.next + i);
    const auto factor = hn::Add(access.load(d, in.weight + i), offset);
    access.store(d, hn::Mul(hn::Mul(access.load(d, in.x + i), scale), factor), y + i);
  });
}

template <class T>
HWY_INLINE void layer_norm_row(const LayerNorm& op, int64_t row, int64_t last_row) {
  const F32 d;
  const Row<T> in(op, row, last_row);
  const T* bias = op.bias.data<T>();
  T* y = op.y.data<T>() + row * in.n;
  Lanes4<F32> sums(d, 0), squares(d, 0);
  reduce_all<T>(d, 0, in.n, sums, [=](int64_t i, auto access, auto& sum) HWY_ATTR {
    access.prefetch(y + i);
    sum = hn::Add(access.load(d, in.x + i), sum);
  });
  const float average = sums.sum(d) / static_cast<float>(in.n);
  const auto mean = hn::Set(d, average);
  reduce_all<T>(d, 0, in.n, squares, [=](int64_t i, auto access, auto& sum) HWY_ATTR {
    const auto v = access.only(d, hn::Sub(access.load(d, in.x + i), mean));
    sum = hn::MulAdd(v, v, sum);
  });
  const float inverse = 1 / std::sqrt(squares.sum(d) / static_cast<float>(in.n) + static_cast<float>(op.eps));
  op.mean.data<float>()[row] = average;
  op.rstd.data<float>()[row] = inverse;
  const auto rstd = hn::Set(d, inverse);
  sweep_all<T>(d, 0, in.n, [=](int64_t i, auto access) HWY_ATTR {
    access.prefetch(in.x + in.next + i);
    const auto normal = hn::Mul(hn::Sub(access.load(d, in.x + i), mean), rstd);
    access.store(d, hn::MulAdd(normal, access.load(d, in.weight + i), access.load(d, bias + i)), y + i);
  });
}

/// Rows whose backward passes run together: they read and write the sums of the parameters' gradients once.
inline constexpr int kTogether = 2;

/// d_weight: [n] fp32, added to.
template <class T, int kRows>
HWY_INLINE void rms_norm_backward_rows(const RmsNormBackward& op, int64_t first_row, float* d_weight) {
  const F32 d;
  const int64_t n = op.x.dim(-1);
  const T* weight = op.weight.data<T>();
  const auto offset = hn::Set(d, static_cast<float>(op.weight_offset));
  const T *x[kRows], *dy[kRows];
  T* dx[kRows];
  hn::Vec<F32> rstds[kRows], projections[kRows];
  for (int r = 0; r < kRows; ++r) {
    const int64_t row = first_row + r;
    x[r] = op.x.data<T>() + row * n, dy[r] = op.dy.data<T>() + row * n, dx[r] = op.dx.data<T>() + row * n;
    float products;
    if (op.products) {
      products = op.products.data<float>()[row];
    } else {
      Lanes4<F32> sums(d, 0);
      reduce_all<T>(d, 0, n, sums, [=, x = x[r], dy = dy[r], dx = dx[r]](int64_t i, auto access, auto& sum) HWY_ATTR {
        access.prefetch(dx + i);
        const auto scaled = hn::Mul(access.load(d, dy + i), hn::Add(access.load(d, weight + i), offset));
        sum = hn::MulAdd(scaled, access.load(d, x + i), sum);
      });
      products = sums.sum(d);
    }
    const float rstd = op.rstd.data<float>()[row];
    rstds[r] = hn::Set(d, rstd);
    projections[r] = hn::Set(d, products * rstd / static_cast<float>(op.products ? op.width : n));
  }
  const int64_t next = first_row + 2 * kRows <= op.x.rows() ? kRows * n : 0;
  sweep_all<T>(d, 0, n, [=, accumulate = op.accumulate_x](int64_t i, auto access) HWY_ATTR {
    const auto factor = hn::Add(access.load(d, weight + i), offset);
    auto sum = access.load_sums(d, d_weight + i);
    for (int r = 0; r < kRows; ++r) {
      access.prefetch(x[r] + next + i);
      access.prefetch(dy[r] + next + i);
      const auto normal = hn::Mul(access.load(d, x[r] + i), rstds[r]), upstream = access.load(d, dy[r] + i);
      auto gradient = hn::Mul(hn::NegMulAdd(normal, projections[r], hn::Mul(upstream, factor)), rstds[r]);
      if (accumulate) gradient = hn::Add(access.load(d, dx[r] + i), gradient);
      access.store(d, gradient, dx[r] + i);
      sum = hn::MulAdd(upstream, normal, sum);
    }
    access.store_sums(d, sum, d_weight + i);
  });
}

/// The sums over a row that the gradient of a layer norm's input takes.
struct Projections {
  hn::Vec<F32> gradient, product;
};

/// d_weight, d_bias: [n] fp32, added to.
template <class T, int kRows>
HWY_INLINE void layer_norm_backward_rows(const LayerNormBackward& op, int64_t first_row, float* d_weight,
                                         float* d_bias) {
  const F32 d;
  const int64_t n = op.x.dim(-1);
  const T* weight = op.weight.data<T>();
  const T *x[kRows], *dy[kRows];
  T* dx[kRows];
  hn::Vec<F32> means[kRows], rstds[kRows], shifts[kRows], projections[kRows];
  for (int r = 0; r < kRows; ++r) {
    const int64_t row = first_row + r;
    x[r] = op.x.data<T>() + row * n, dy[r] = op.dy.data<T>() + row * n, dx[r] = op.dx.data<T>() + row * n;
    means[r] = hn::Set(d, op.mean.data<float>()[row]);
    const auto zero = hn::Zero(d);
    Four<Projections> parts{{zero, zero}, {zero, zero}, {zero, zero}, {zero, zero}};
    reduce_all<T>(d, 0, n, parts,
                  [=, x = x[r], dy = dy[r], dx = dx[r], mean = means[r]](int64_t i, auto access, auto& sum) HWY_ATTR {
                    access.prefetch(dx + i);
                    const auto scaled = hn::Mul(access.load(d, dy + i), access.load(d, weight + i));
                    sum.gradient = hn::Add(sum.gradient, scaled);
                    sum.product = hn::MulAdd(scaled, hn::Sub(access.load(d, x + i), mean), sum.product);
                  });
    const auto total = [=](auto a, auto b, auto c, auto e) HWY_ATTR {
      return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e)))) / static_cast<float>(n);
    };
    const float rstd = op.rstd.data<float>()[row];
    rstds[r] = hn::Set(d, rstd);
    shifts[r] = hn::Set(
        d, total(parts.part0.gradient, parts.part1.gradient, parts.part2.gradient, parts.part3.gradient) * rstd);
    projections[r] = hn::Set(
        d, total(parts.part0.product, parts.part1.product, parts.part2.product, parts.part3.product) * rstd * rstd);
  }
  const int64_t next = first_row + 2 * kRows <= op.x.rows() ? kRows * n : 0;
  sweep_all<T>(d, 0, n, [=, accumulate = op.accumulate_x](int64_t i, auto access) HWY_ATTR {
    const auto factor = access.load(d, weight + i);
    auto weight_sum = access.load_sums(d, d_weight + i), bias_sum = access.load_sums(d, d_bias + i);
    for (int r = 0; r < kRows; ++r) {
      access.prefetch(x[r] + next + i);
      access.prefetch(dy[r] + next + i);
      const auto normal = hn::Mul(hn::Sub(access.load(d, x[r] + i), means[r]), rstds[r]);
      const auto upstream = access.load(d, dy[r] + i);
      auto gradient = hn::MulSub(hn::Mul(upstream, factor), rstds[r], hn::MulAdd(normal, projections[r], shifts[r]));
      if (accumulate) gradient = hn::Add(access.load(d, dx[r] + i), gradient);
      access.store(d, gradient, dx[r] + i);
      weight_sum = hn::MulAdd(upstream, normal, weight_sum);
      bias_sum = hn::Add(upstream, bias_sum);
    }
    access.store_sums(d, weight_sum, d_weight + i);
    access.store_sums(d, bias_sum, d_bias + i);
  });
}

void rms_norm(const RmsNorm& op, Interval rows) {
  visit(op.x.dtype(), [&](auto tag) HWY_ATTR {
    for (int64_t row = rows.begin; row < rows.end; ++row) rms_norm_row<typename decltype(tag)::type>(op, row, rows.end);
  });
}

void rms_norm_backward(const RmsNormBackward& op, Interval rows, float* d_weight) {
  const int64_t n = op.x.dim(-1);
  std::fill(d_weight, d_weight + n, 0.0f);
  visit(op.x.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    int64_t row = rows.begin;
    for (; row + kTogether <= rows.end; row += kTogether) rms_norm_backward_rows<T, kTogether>(op, row, d_weight);
    for (; row < rows.end; ++row) rms_norm_backward_rows<T, 1>(op, row, d_weight);
    order_sums<T>(F32(), n, d_weight);
  });
}

void layer_norm(const LayerNorm& op, Interval rows) {
  visit(op.x.dtype(), [&](auto tag) HWY_ATTR {
    for (int64_t row = rows.begin; row < rows.end; ++row)
      layer_norm_row<typename decltype(tag)::type>(op, row, rows.end);
  });
}

void layer_norm_backward(const LayerNormBackward& op, Interval rows, float* d_weight, float* d_bias) {
  const int64_t n = op.x.dim(-1);
  std::fill(d_weight, d_weight + n, 0.0f);
  std::fill(d_bias, d_bias + n, 0.0f);
  visit(op.x.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    int64_t row = rows.begin;
    for (; row + kTogether <= rows.end; row += kTogether)
      layer_norm_backward_rows<T, kTogether>(op, row, d_weight, d_bias);
    for (; row < rows.end; ++row) layer_norm_backward_rows<T, 1>(op, row, d_weight, d_bias);
    order_sums<T>(F32(), n, d_weight);
    order_sums<T>(F32(), n, d_bias);
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
