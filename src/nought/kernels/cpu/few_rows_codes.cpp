// Products of few rows by codes of 8 bits: within a block codes are summed before the scale multiplies them, so that a
// code costs one multiply-add. The bits differ from those of large products, which decode codes first, in rounding.
#include "nought/kernels/cpu/few_rows.h"
#include "nought/kernels/cpu/finish_column.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/scratch.h"
#include "nought/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/few_rows_codes.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/words-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

/// A, widened: [m, k].
void widen_rows(const Product& product, float* to) {
  visit(product.inputs, [&](auto tag) HWY_ATTR {
    const auto* a = static_cast<const typename decltype(tag)::type*>(product.a);
    const auto [m, n, k] = product.sizes;
    for (int64_t row = 0; row < m; ++row, to += k) {
      if (product.transpose_a) {
        for (int64_t p = 0; p < k; ++p) to[p] = static_cast<float>(a[p * product.lda + row]);
      } else {
        widen(a + row * product.lda, k, to);
      }
    }
  });
}

/// sums[r] = row r of x times one row of codes: summed within a block before it is multiplied by the scale.
template <int kRows>
HWY_INLINE void dot_codes(const int8_t* codes, const float* scales, int64_t blocks, const float* x, float* sums) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), stride = blocks * kCodeBlock;
  FloatVector totals[kRows];
  for (auto& total : totals) total = hn::Zero(d);
  for (int64_t block = 0; block < blocks; ++block, codes += kCodeBlock, x += kCodeBlock) {
    FloatVector parts[kRows];
    for (auto& part : parts) part = hn::Zero(d);
    for (int64_t i = 0; i < kCodeBlock; i += lanes) {
      const auto code = load(d, codes + i);
      for (int r = 0; r < kRows; ++r) parts[r] = hn::MulAdd(code, hn::LoadU(d, x + r * stride + i), parts[r]);
    }
    const auto scale = hn::Set(d, scales[block]);
    for (int r = 0; r < kRows; ++r) totals[r] = hn::MulAdd(parts[r], scale, totals[r]);
  }
  for (int r = 0; r < kRows; ++r) sums[r] = hn::GetLane(hn::SumOfLanes(d, totals[r]));
}

void dot_rows_of_codes(const Product& product, const float* x, int64_t begin, int64_t end) {
  const auto [m, n, k] = product.sizes;
  const int64_t blocks = k / kCodeBlock;
  const Scratch wide(bytes_for<float>(blocks));
  float sums[kFewRows], *scales = wide.data<float>();
  for (int64_t j = begin; j < end; ++j) {
    const int8_t* codes = product.codes->values.data<int8_t>() + j * k;
    const f16_t* stored = product.codes->scales.data<f16_t>() + j * blocks;
    const F32 d;
    sweep(d, 0, blocks,
          [=](int64_t i, auto access) HWY_ATTR { access.store(d, access.load(d, stored + i), scales + i); });
    int64_t row = 0;
    for (; row + 4 <= m; row += 4) dot_codes<4>(codes, scales, blocks, x + row * k, sums + row);
    for (; row < m; ++row) dot_codes<1>(codes, scales, blocks, x + row * k, sums + row);
    visit(product.inputs, [&](auto tag) {
      finish_column<typename decltype(tag)::type>(product, {0, product.sizes.m}, j, sums);
    });
  }
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {
HWY_EXPORT(widen_rows);
HWY_EXPORT(dot_rows_of_codes);

void multiply_few_by_codes(const Product& product) {
  const auto [m, n, k] = product.sizes;
  const Scratch x(bytes_for<float>(m * k));
  HWY_DYNAMIC_DISPATCH(widen_rows)(product, x.data<float>());
  // Columns by 16: threads do not share the lines of c.
  parallel_for(n, m * k, 16, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(dot_rows_of_codes)(product, x.data<float>(), begin, end);
  });
}

}  // namespace nought::cpu
#endif
