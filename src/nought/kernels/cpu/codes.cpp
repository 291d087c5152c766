#include "nought/kernels/cpu/codes.h"

#include "nought/kernels/check.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/scratch.h"
#include "nought/kernels/cpu/targets.h"
#include "nought/kernels/reference/reference.h"
#include "nought/kernels/rounding.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/codes.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

/// A vector of codes as floats. kCodeBlock is a multiple of every vector's length.
HWY_INLINE hn::Vec<F32> load_codes(const int8_t* from) {
  const F32 d;
  const hn::Rebind<int8_t, F32> d8;
  const hn::Rebind<int32_t, F32> d32;
  return hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, from)));
}

template <bool kAdd, class T>
HWY_INLINE void decode_blocks(const int8_t* codes, const f16_t* scales, int64_t blocks, T* to) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t block = 0; block < blocks; ++block, codes += kCodeBlock, to += kCodeBlock) {
    const auto scale = hn::Set(d, float{scales[block]});
    for (int64_t i = 0; i < kCodeBlock; i += lanes) {
      const auto value = hn::Mul(load_codes(codes + i), scale);
      store(d, kAdd ? hn::Add(load(d, to + i), value) : value, to + i);
    }
  }
}

void decode_to(const int8_t* codes, const f16_t* scales, int64_t blocks, DType dtype, void* to, bool add) {
  visit(dtype, [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    if (add) {
      decode_blocks<true>(codes, scales, blocks, static_cast<T*>(to));
    } else {
      decode_blocks<false>(codes, scales, blocks, static_cast<T*>(to));
    }
  });
}

/// to: [count] f32.
void widen_row(const Tensor& from, int64_t begin, int64_t count, float* to) {
  visit(from.dtype(), [&](auto tag) HWY_ATTR {
    const F32 d;
    const auto* values = from.data<typename decltype(tag)::type>() + begin;
    sweep(d, 0, count, [=](int64_t i, auto access) HWY_ATTR { access.store(d, access.load(d, values + i), to + i); });
  });
}

/// sums[r] = row r of x times one row of codes. x: kRows rows of so many blocks, f32.
template <int kRows>
HWY_INLINE void dot_rows(const int8_t* codes, const float* scales, int64_t blocks, const float* x, float* sums) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), stride = blocks * kCodeBlock;
  hn::Vec<F32> totals[kRows];
  for (auto& total : totals) total = hn::Zero(d);
  for (int64_t block = 0; block < blocks; ++block, codes += kCodeBlock, x += kCodeBlock) {
    hn::Vec<F32> parts[kRows];
    for (auto& part : parts) part = hn::Zero(d);
    for (int64_t i = 0; i < kCodeBlock; i += lanes) {
      const auto code = load_codes(codes + i);
      for (int r = 0; r < kRows; ++r) parts[r] = hn::MulAdd(code, hn::LoadU(d, x + r * stride + i), parts[r]);
    }
    const auto scale = hn::Set(d, scales[block]);
    for (int r = 0; r < kRows; ++r) totals[r] = hn::MulAdd(parts[r], scale, totals[r]);
  }
  for (int r = 0; r < kRows; ++r) sums[r] = hn::GetLane(hn::SumOfLanes(d, totals[r]));
}

/// sums: [rows] for one row of codes. Rows are taken by four, so that a code is loaded once for all of them.
void dot_codes(const int8_t* codes, const float* scales, int64_t blocks, const float* x, int64_t rows, float* sums) {
  const int64_t stride = blocks * kCodeBlock;
  int64_t row = 0;
  for (; row + 4 <= rows; row += 4) dot_rows<4>(codes, scales, blocks, x + row * stride, sums + row);
  for (; row < rows; ++row) dot_rows<1>(codes, scales, blocks, x + row * stride, sums + row);
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {
HWY_EXPORT(decode_to);
HWY_EXPORT(widen_row);
HWY_EXPORT(dot_codes);

void decode(const Weight& weight, int64_t begin, int64_t count, DType dtype, void* to, bool add) {
  HWY_DYNAMIC_DISPATCH(decode_to)
  (weight.values.data<int8_t>() + begin, weight.scales.data<f16_t>() + begin / kCodeBlock, count / kCodeBlock, dtype,
   to, add);
}

bool is_for_few(const MatMul& op) {
  return op.b.is_coded() && op.transpose_b && !op.transpose_a && op.sizes().m <= kFewRows;
}

namespace {

/// Ends the sums of column j of c: [rows].
template <class T, class C>
void finish_column(const MatMul& op, const MatMulSizes& sizes, int64_t j, const float* sums) {
  const float bias = op.bias ? static_cast<float>(op.bias.data<T>()[j]) : 0.0f;
  for (int64_t row = 0; row < sizes.m; ++row) {
    C& c = op.c.data<C>()[row * sizes.n + j];
    const float sum = sums[row] + bias;
    c = static_cast<C>(op.accumulate ? sum + static_cast<float>(c) : sum);
  }
}

}  // namespace

void multiply_few(const MatMul& op) {
  const MatMulSizes sizes = op.sizes();
  const int64_t m = sizes.m, n = sizes.n, k = sizes.k, blocks = k / kCodeBlock;
  const Scratch x(bytes_for<float>(m * k));
  HWY_DYNAMIC_DISPATCH(widen_row)(op.a, 0, m * k, x.data<float>());
  visit_float(op.a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto finish = op.c.dtype() == op.a.dtype() ? finish_column<T, T> : finish_column<T, float>;
    // Columns by 16: threads do not share the lines of c.
    parallel_for(n, m * k, 16, [&](int64_t begin, int64_t end) {
      const Scratch scales(bytes_for<float>(blocks));
      float sums[kFewRows];
      for (int64_t j = begin; j < end; ++j) {
        HWY_DYNAMIC_DISPATCH(widen_row)(op.b.scales, j * blocks, blocks, scales.data<float>());
        HWY_DYNAMIC_DISPATCH(dot_codes)
        (op.b.values.data<int8_t>() + j * k, scales.data<float>(), blocks, x.data<float>(), m, sums);
        finish(op, sizes, j, sums);
      }
    });
  });
}

void run(const QuantizeBlocks& op) {
  check(op);
  visit_float(op.x.dtype(), [&](auto tag) {
    const auto* x = op.x.data<typename decltype(tag)::type>();
    int8_t* codes = op.codes.data<int8_t>();
    f16_t* scales = op.scales.data<f16_t>();
    parallel_rows(op.scales.numel(), kCodeBlock, [=](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block)
        scales[block] = quantize_block(x + block * kCodeBlock, codes + block * kCodeBlock);
    });
  });
}

void run(const DequantizeBlocks& op) {
  if (op.x.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_rows(op.weight.scales.numel(), kCodeBlock, [&](int64_t begin, int64_t end) {
    decode(op.weight, begin * kCodeBlock, (end - begin) * kCodeBlock, op.x.dtype(),
           op.x.raw() + begin * kCodeBlock * size_of(op.x.dtype()));
  });
}

}  // namespace nought::cpu
#endif
