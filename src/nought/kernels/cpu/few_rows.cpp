#include "nought/kernels/cpu/few_rows.h"

#include "nought/kernels/cpu/codes.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/scratch.h"
#include "nought/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/few_rows.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

using FloatVector = hn::Vec<F32>;

// --- two vectors of a row at once ---
//
// For bf16, the even elements come first, then the odd ones (see bf16-inl.h). x is brought into that order once.

template <class T>
HWY_INLINE void load_twice(const T* from, FloatVector& first, FloatVector& second) {
  const F32 d;
  if constexpr (std::is_same_v<T, bf16_t>) {
    first = load_even(d, from), second = load_odd(d, from);
  } else {
    first = load(d, from);
    second = load(d, from + hn::Lanes(d));
  }
}

/// Elements of k that are taken at a time, so that as much of x stays in the first cache.
inline int64_t stretch_of(int64_t m) { return std::max<int64_t>(512, 4096 / m / 64 * 64); }

/// to[0, count) = from, widened; pairs of vectors lie as load_twice() has them.
template <class T>
HWY_INLINE void widen_twice(const T* from, int64_t count, float* to) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t begin = 0;
  for (; begin + 2 * lanes <= count; begin += 2 * lanes) {
    FloatVector first, second;
    load_twice(from + begin, first, second);
    hn::StoreU(first, d, to + begin);
    hn::StoreU(second, d, to + begin + lanes);
  }
  widen(from + begin, count - begin, to + begin);
}

/// A, widened, in stretches of k: [m, stretch] each. With codes there is but one stretch.
template <class T>
void widen_rows_of(const Product& product, int64_t stretch, bool split, float* to) {
  const auto [m, n, k] = product.sizes;
  const Scratch gathered(bytes_for<T>(product.transpose_a ? k : 0));
  for (int64_t row = 0; row < m; ++row) {
    const T* from = static_cast<const T*>(product.a) + row * (product.transpose_a ? 1 : product.lda);
    if (product.transpose_a) {
      for (int64_t p = 0; p < k; ++p) gathered.template data<T>()[p] = from[p * product.lda];
      from = gathered.template data<T>();
    }
    for (int64_t p = 0; p < k; p += stretch) {
      const int64_t count = std::min(stretch, k - p);
      split ? widen_twice(from + p, count, to + p * m + row * count) : widen(from + p, count, to + p * m + row * count);
    }
  }
}

void widen_rows(const Product& product, bool split, float* to) {
  const int64_t stretch = split ? stretch_of(product.sizes.m) : product.sizes.k;
  visit(product.inputs,
        [&](auto tag) HWY_ATTR { widen_rows_of<typename decltype(tag)::type>(product, stretch, split, to); });
}

/// A', widened: [k, m].
void widen_columns(const Product& product, float* to) {
  visit(product.inputs, [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const auto [m, n, k] = product.sizes;
    const T* a = static_cast<const T*>(product.a);
    if (product.transpose_a) {
      for (int64_t p = 0; p < k; ++p) widen(a + p * product.lda, m, to + p * m);
      return;
    }
    const Scratch wide(bytes_for<float>(k));
    for (int64_t row = 0; row < m; ++row) {
      widen(a + row * product.lda, k, wide.data<float>());
      for (int64_t p = 0; p < k; ++p) to[p * m + row] = wide.data<float>()[p];
    }
  });
}

// --- b' as it lies: an element of c is the product of two rows ---

/// Columns of c that a thread takes at a time, and rows and columns of a tile of them. An element has two vectors of
/// sums, however many rows there are, so that its bits do not depend on them.
inline constexpr int64_t kColumnsAtOnce = 16;
inline constexpr int kDotRows = 3;
inline constexpr int kDotColumns = 4;
/// Columns of a tile of kRows rows: sums and two vectors of b each stay in registers.
template <int kRows>
inline constexpr int kTileColumns = kRows == 1 ? kDotColumns : 2;

/// sums: two vectors for each row and column, of kColumnsAtOnce columns in a row, += those of x: [kRows, count] times
/// b: kColumns rows. count is a multiple of two vectors but at the end of k.
template <int kRows, int kColumns, class T>
HWY_INLINE void dot_tile(const T* b, int64_t ldb, const float* x, int64_t count, bool fetch, float* sums) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto at = [=](int r, int j) { return sums + (r * kColumnsAtOnce + j) * 2 * lanes; };
  FloatVector first[kRows][kColumns], second[kRows][kColumns];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int j = 0; j < kColumns; ++j) {
      first[r][j] = hn::LoadU(d, at(r, j));
      second[r][j] = hn::LoadU(d, at(r, j) + lanes);
    }
  int64_t p = 0;
  for (; p + 2 * lanes <= count; p += 2 * lanes) {
    FloatVector low[kColumns], high[kColumns];
#pragma GCC unroll 4
    for (int j = 0; j < kColumns; ++j) {
      load_twice(b + j * ldb + p, low[j], high[j]);
      if (fetch) {
        hwy::Prefetch(b + (kDotColumns + j) * ldb + p);
        if constexpr (2 * hn::MaxLanes(F32()) * sizeof(T) > 64) hwy::Prefetch(b + (kDotColumns + j) * ldb + p + lanes);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const auto x0 = hn::LoadU(d, x + r * count + p), x1 = hn::LoadU(d, x + r * count + p + lanes);
#pragma GCC unroll 4
      for (int j = 0; j < kColumns; ++j) {
        first[r][j] = hn::MulAdd(x0, low[j], first[r][j]);
        second[r][j] = hn::MulAdd(x1, high[j], second[r][j]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int j = 0; j < kColumns; ++j) {
      hn::StoreU(first[r][j], d, at(r, j));
      hn::StoreU(second[r][j], d, at(r, j) + lanes);
    }
  if (p == count) return;
  for (int r = 0; r < kRows; ++r)
    for (int j = 0; j < kColumns; ++j)
      sweep(d, p, count, [=](int64_t i, auto access) HWY_ATTR {
        const auto product =
            hn::MulAdd(access.load(d, x + r * count + i), access.load(d, b + j * ldb + i), hn::LoadU(d, at(r, j)));
        hn::StoreU(product, d, at(r, j));
      });
}

/// `columns` columns, at most kDotColumns, of kRows rows.
template <int kRows, class T>
HWY_INLINE void dot_rows(const T* b, int64_t ldb, int64_t columns, const float* x, int64_t count, bool fetch,
                         float* sums) {
  constexpr int kColumns = kTileColumns<kRows>;
  const int64_t step = 2 * static_cast<int64_t>(hn::Lanes(F32()));
  int64_t j = 0;
  for (; j + kColumns <= columns; j += kColumns)
    dot_tile<kRows, kColumns>(b + j * ldb, ldb, x, count, fetch, sums + j * step);
  for (; j < columns; ++j) dot_tile<kRows, 1>(b + j * ldb, ldb, x, count, fetch, sums + j * step);
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

/// `columns` columns of c from j on.
template <class T>
HWY_INLINE void dot_columns(const Product& product, const float* x, int64_t j, int64_t columns, float* sums) {
  const F32 d;
  const int64_t m = product.sizes.m, k = product.sizes.k;  // captured below, which bindings cannot be
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t stretch = stretch_of(m), row_size = kColumnsAtOnce * 2 * lanes;
  std::fill(sums, sums + m * row_size, 0.0f);
  for (int64_t p = 0; p < k; p += stretch) {
    const int64_t count = std::min(stretch, k - p);
    for (int64_t i = 0; i < columns; i += kDotColumns) {
      const T* b = static_cast<const T*>(product.b) + (j + i) * product.ldb + p;
      const auto multiply = [&, b, i](auto rows, int64_t row) HWY_ATTR {
        dot_rows<decltype(rows)::value>(b, product.ldb, std::min<int64_t>(kDotColumns, columns - i),
                                        x + p * m + row * count, count, /*fetch=*/row == 0,
                                        sums + row * row_size + i * 2 * lanes);
        return row + decltype(rows)::value;
      };
      int64_t row = 0;
      while (row + kDotRows <= m) row = multiply(std::integral_constant<int, kDotRows>(), row);
      if (row + 2 <= m) row = multiply(std::integral_constant<int, 2>(), row);
      if (row < m) multiply(std::integral_constant<int, 1>(), row);
    }
  }
  float totals[kFewRows * kColumnsAtOnce];
  for (int64_t row = 0; row < m; ++row)
    for (int64_t i = 0; i < columns; ++i) {
      const float* pair = sums + row * row_size + i * 2 * lanes;
      totals[row * columns + i] =
          hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::LoadU(d, pair), hn::LoadU(d, pair + lanes))));
    }
  finish_columns<T>(product, j, columns, totals);
}

void dot_rows_of_b(const Product& product, const float* x, int64_t begin, int64_t end) {
  visit(product.inputs, [&](auto tag) HWY_ATTR {
    const Scratch sums(bytes_for<float>(product.sizes.m * kColumnsAtOnce * 2 * static_cast<int64_t>(hn::Lanes(F32()))));
    for (int64_t j = begin; j < end; j += kColumnsAtOnce)
      dot_columns<typename decltype(tag)::type>(product, x, j, std::min(kColumnsAtOnce, end - j), sums.data<float>());
  });
}

/// sums[r] = row r of x times a row of floats.
template <int kRows>
HWY_INLINE void dot_values(const float* row, int64_t k, const float* x, float* sums) {
  const F32 d;
  FloatVector totals[kRows];
  for (auto& total : totals) total = hn::Zero(d);
  sweep(d, 0, k, [&](int64_t i, auto access) HWY_ATTR {
    const auto value = access.load(d, row + i);
    for (int r = 0; r < kRows; ++r) totals[r] = hn::MulAdd(value, access.load(d, x + r * k + i), totals[r]);
  });
  for (int r = 0; r < kRows; ++r) sums[r] = hn::GetLane(hn::SumOfLanes(d, totals[r]));
}

void dot_rows_of_four_bits(const Product& product, const float* x, int64_t begin, int64_t end) {
  const auto [m, n, k] = product.sizes;
  const Scratch wide(bytes_for<float>(k));
  float sums[kFewRows], *values = wide.data<float>();
  for (int64_t j = begin; j < end; ++j) {
    decode(*product.codes, j * k, k, DType::f32, values);
    int64_t row = 0;
    for (; row + 4 <= m; row += 4) dot_values<4>(values, k, x + row * k, sums + row);
    for (; row < m; ++row) dot_values<1>(values, k, x + row * k, sums + row);
    visit(product.inputs, [&](auto tag) { finish_columns<typename decltype(tag)::type>(product, j, 1, sums); });
  }
}

void dot_rows_of_codes(const Product& product, const float* x, int64_t begin, int64_t end) {
  if (product.codes->is_four_bits()) return dot_rows_of_four_bits(product, x, begin, end);
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

/// sums[r, 0 to columns) += the sum over kDepth rows of b, times elements of x: [kDepth, m].
template <int kDepth, class T>
HWY_INLINE void add_rows(const T* b, int64_t ldb, const float* x, int64_t m, int64_t columns, float* sums) {
  const F32 d;
  sweep(d, 0, columns, [=](int64_t j, auto access) HWY_ATTR {
    FloatVector rows[kDepth];
#pragma GCC unroll 8
    for (int p = 0; p < kDepth; ++p) rows[p] = access.load(d, b + p * ldb + j);
    for (int64_t r = 0; r < m; ++r) {
      auto sum = access.load(d, sums + r * columns + j);
#pragma GCC unroll 8
      for (int p = 0; p < kDepth; ++p) sum = hn::MulAdd(hn::Set(d, x[p * m + r]), rows[p], sum);
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
      for (; p + 8 <= k; p += 8) add_rows<8>(b + p * product.ldb, product.ldb, x + p * m, m, columns, sums);
      for (; p < k; ++p) add_rows<1>(b + p * product.ldb, product.ldb, x + p * m, m, columns, sums);
      finish_columns<T>(product, j, columns, sums);
    }
  });
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {
HWY_EXPORT(widen_rows);
HWY_EXPORT(widen_columns);
HWY_EXPORT(dot_rows_of_b);
HWY_EXPORT(dot_rows_of_codes);
HWY_EXPORT(sum_rows_of_b);

void multiply_few(const Product& product) {
  const auto [m, n, k] = product.sizes;
  const Scratch x(bytes_for<float>(m * k));
  const bool codes = product.codes != nullptr;
  if (codes || product.transpose_b) {
    HWY_DYNAMIC_DISPATCH(widen_rows)(product, /*split=*/!codes, x.data<float>());
  } else {
    HWY_DYNAMIC_DISPATCH(widen_columns)(product, x.data<float>());
  }
  // Columns by 16 or 64: threads do not share the lines of c.
  parallel_for(n, m * k, product.transpose_b ? 16 : 64, [&](int64_t begin, int64_t end) {
    if (codes) {
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
