#include "nought/kernels/cpu/few_rows.h"

#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/scratch.h"
#include "nought/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/few_rows.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

using FloatVector = hn::Vec<F32>;

// --- two vectors of a row at once ---
//
// Of bf16, the 32-bit words of a stretch of memory are split into low and high halves, which costs less than widening
// them in order: so the even elements come first, then the odd ones. x is brought into that order once.

template <class T>
HWY_INLINE void load_twice(const T* from, FloatVector& first, FloatVector& second) {
  const F32 d;
  if constexpr (std::is_same_v<T, bf16_t>) {
    const hn::RebindToUnsigned<F32> words;
    const auto pairs = hn::LoadU(words, reinterpret_cast<const uint32_t*>(from));
    first = hn::BitCast(d, hn::ShiftLeft<16>(pairs));
    second = hn::BitCast(d, hn::And(pairs, hn::Set(words, 0xFFFF0000)));
  } else {
    first = load(d, from);
    second = load(d, from + hn::Lanes(d));
  }
}

/// A of a product with few rows, widened: [m, k]. `split`: whole pairs of vectors lie as load_twice() has them.
template <class T>
void widen_rows_of(const Product& product, bool split, float* to) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto [m, n, k] = product.sizes;
  const auto* a = static_cast<const T*>(product.a);
  for (int64_t row = 0; row < m; ++row, to += k) {
    int64_t begin = 0;
    if (product.transpose_a) {
      for (int64_t p = 0; p < k; ++p) to[p] = static_cast<float>(a[p * product.lda + row]);
      if (!split || !std::is_same_v<T, bf16_t>) continue;
      HWY_ALIGN float pair[2 * hn::MaxLanes(F32())];
      for (; begin + 2 * lanes <= k; begin += 2 * lanes) {
        std::copy_n(to + begin, 2 * lanes, pair);
        for (int64_t i = 0; i < lanes; ++i) to[begin + i] = pair[2 * i], to[begin + lanes + i] = pair[2 * i + 1];
      }
      continue;
    }
    const auto* from = a + row * product.lda;
    for (; split && begin + 2 * lanes <= k; begin += 2 * lanes) {
      FloatVector first, second;
      load_twice(from + begin, first, second);
      hn::StoreU(first, d, to + begin);
      hn::StoreU(second, d, to + begin + lanes);
    }
    sweep(d, begin, k, [=](int64_t i, auto access) HWY_ATTR { access.store(d, access.load(d, from + i), to + i); });
  }
}

void widen_rows(const Product& product, bool split, float* to) {
  visit(product.inputs,
        [&](auto tag) HWY_ATTR { widen_rows_of<typename decltype(tag)::type>(product, split, to); });
}

// --- b' as it lies: an element of c is the product of two rows ---

/// sums[r * kColumns + j] = row r of x, split, times row j of b.
template <int kRows, int kColumns, class T>
HWY_INLINE void dot_dense(const T* b, int64_t ldb, int64_t k, const float* x, float* sums) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  FloatVector first[kRows][kColumns], second[kRows][kColumns];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int j = 0; j < kColumns; ++j) first[r][j] = second[r][j] = hn::Zero(d);
  int64_t p = 0;
  for (; p + 2 * lanes <= k; p += 2 * lanes) {
    FloatVector low[kColumns], high[kColumns];
#pragma GCC unroll 4
    for (int j = 0; j < kColumns; ++j) load_twice(b + j * ldb + p, low[j], high[j]);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const auto x0 = hn::LoadU(d, x + r * k + p), x1 = hn::LoadU(d, x + r * k + p + lanes);
#pragma GCC unroll 4
      for (int j = 0; j < kColumns; ++j) {
        first[r][j] = hn::MulAdd(x0, low[j], first[r][j]);
        second[r][j] = hn::MulAdd(x1, high[j], second[r][j]);
      }
    }
  }
  sweep(d, p, k, [&](int64_t i, auto access) HWY_ATTR {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int j = 0; j < kColumns; ++j)
        first[r][j] = hn::MulAdd(access.load(d, x + r * k + i), access.load(d, b + j * ldb + i), first[r][j]);
  });
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int j = 0; j < kColumns; ++j)
      sums[r * kColumns + j] = hn::GetLane(hn::SumOfLanes(d, hn::Add(first[r][j], second[r][j])));
}

/// A vector of codes as floats. kCodeBlock is a multiple of every vector's length.
HWY_INLINE FloatVector load_codes(const int8_t* from) {
  const F32 d;
  const hn::Rebind<int8_t, F32> d8;
  const hn::Rebind<int32_t, F32> d32;
  return hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, from)));
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
      const auto code = load_codes(codes + i);
      for (int r = 0; r < kRows; ++r) parts[r] = hn::MulAdd(code, hn::LoadU(d, x + r * stride + i), parts[r]);
    }
    const auto scale = hn::Set(d, scales[block]);
    for (int r = 0; r < kRows; ++r) totals[r] = hn::MulAdd(parts[r], scale, totals[r]);
  }
  for (int r = 0; r < kRows; ++r) sums[r] = hn::GetLane(hn::SumOfLanes(d, totals[r]));
}

/// Ends `columns` columns of c from j on. sums: [m, columns].
template <class T>
void finish_columns(const Product& product, int64_t j, int64_t columns, const float* sums) {
  const auto* bias = static_cast<const T*>(product.bias);
  const auto finish = [&](auto* c) {
    for (int64_t row = 0; row < product.sizes.m; ++row)
      for (int64_t i = 0; i < columns; ++i) {
        auto& out = c[row * product.ldc + j + i];
        const float sum = sums[row * columns + i] + (bias != nullptr ? static_cast<float>(bias[j + i]) : 0.0f);
        out = static_cast<std::remove_reference_t<decltype(out)>>(product.accumulate ? sum + static_cast<float>(out)
                                                                                     : sum);
      }
  };
  product.output == DType::f32 ? finish(static_cast<float*>(product.c)) : finish(static_cast<T*>(product.c));
}

/// kColumns columns of c from j on, rows by three, then one by one: 12 sums are under way, or 2 kColumns.
template <int kColumns, class T>
HWY_INLINE void dot_columns(const Product& product, const float* x, int64_t j) {
  const auto [m, n, k] = product.sizes;
  const T* b = static_cast<const T*>(product.b) + j * product.ldb;
  float sums[kFewRows * kColumns];
  int64_t row = 0;
  if constexpr (kColumns <= 2)
    for (; row + 3 <= m; row += 3) dot_dense<3, kColumns>(b, product.ldb, k, x + row * k, sums + row * kColumns);
  for (; row < m; ++row) dot_dense<1, kColumns>(b, product.ldb, k, x + row * k, sums + row * kColumns);
  finish_columns<T>(product, j, kColumns, sums);
}

void dot_rows_of_b(const Product& product, const float* x, int64_t begin, int64_t end) {
  visit(product.inputs, [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    int64_t j = begin;
    if (product.sizes.m == 1)
      for (; j + 4 <= end; j += 4) dot_columns<4, T>(product, x, j);
    for (; j + 2 <= end; j += 2) dot_columns<2, T>(product, x, j);
    for (; j < end; ++j) dot_columns<1, T>(product, x, j);
  });
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
    visit(product.inputs, [&](auto tag) { finish_columns<typename decltype(tag)::type>(product, j, 1, sums); });
  }
}

// --- b as it lies: rows of c are sums of rows of b ---

/// Columns of c whose sums stay in the first cache while rows of b go by.
inline int64_t stretch_columns(int64_t m) { return std::max<int64_t>(256, 4096 / m / 64 * 64); }

/// sums[r, 0 to columns) += the sum over kDepth rows of b, times elements of x.
template <int kDepth, class T>
HWY_INLINE void add_rows(const T* b, int64_t ldb, const float* x, int64_t k, int64_t m, int64_t columns, float* sums) {
  const F32 d;
  sweep(d, 0, columns, [=](int64_t j, auto access) HWY_ATTR {
    FloatVector rows[kDepth];
#pragma GCC unroll 4
    for (int p = 0; p < kDepth; ++p) rows[p] = access.load(d, b + p * ldb + j);
    for (int64_t r = 0; r < m; ++r) {
      auto sum = access.load(d, sums + r * columns + j);
#pragma GCC unroll 4
      for (int p = 0; p < kDepth; ++p) sum = hn::MulAdd(hn::Set(d, x[r * k + p]), rows[p], sum);
      access.store(d, sum, sums + r * columns + j);
    }
  });
}

void sum_rows_of_b(const Product& product, const float* x, int64_t begin, int64_t end) {
  visit(product.inputs, [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const auto [m, n, k] = product.sizes;
    const int64_t stretch = stretch_columns(m);
    const Scratch memory(bytes_for<float>(m * stretch));
    float* sums = memory.data<float>();
    for (int64_t j = begin; j < end; j += stretch) {
      const int64_t columns = std::min(stretch, end - j);
      const T* b = static_cast<const T*>(product.b) + j;
      std::fill(sums, sums + m * columns, 0.0f);
      int64_t p = 0;
      for (; p + 4 <= k; p += 4) add_rows<4>(b + p * product.ldb, product.ldb, x + p, k, m, columns, sums);
      for (; p < k; ++p) add_rows<1>(b + p * product.ldb, product.ldb, x + p, k, m, columns, sums);
      finish_columns<T>(product, j, columns, sums);
    }
  });
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {
HWY_EXPORT(widen_rows);
HWY_EXPORT(dot_rows_of_b);
HWY_EXPORT(dot_rows_of_codes);
HWY_EXPORT(sum_rows_of_b);

void multiply_few(const Product& product) {
  const auto [m, n, k] = product.sizes;
  const Scratch x(bytes_for<float>(m * k));
  const bool dots = product.transpose_b && product.codes == nullptr;
  HWY_DYNAMIC_DISPATCH(widen_rows)(product, /*split=*/dots, x.data<float>());
  // Columns by 16 or 64: threads do not share the lines of c.
  parallel_for(n, m * k, product.transpose_b ? 16 : 64, [&](int64_t begin, int64_t end) {
    if (product.codes != nullptr) {
      HWY_DYNAMIC_DISPATCH(dot_rows_of_codes)(product, x.data<float>(), begin, end);
    } else if (product.transpose_b) {
      HWY_DYNAMIC_DISPATCH(dot_rows_of_b)(product, x.data<float>(), begin, end);
    } else {
      HWY_DYNAMIC_DISPATCH(sum_rows_of_b)(product, x.data<float>(), begin, end);
    }
  });
}

}  // namespace nought::cpu
#endif
