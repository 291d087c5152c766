#include "nought/kernels/cpu/rounded_products.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "nought/kernels/cpu/codes.h"
#include "nought/kernels/cpu/finish_column.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/scratch.h"
#include "nought/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/rounded_products.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/coded_column-inl.h"
#include "nought/kernels/cpu/words-inl.h"

#if !defined(NOUGHT_KERNELS_CPU_ROUNDED_PRODUCTS_ONCE)
#define NOUGHT_KERNELS_CPU_ROUNDED_PRODUCTS_ONCE
namespace nought::cpu {

inline constexpr int64_t kInputs = 32;      // inputs that share a scale: with 256 a small model loses 2% of perplexity
inline constexpr int64_t kRowsAtOnce = 64;  // rows whose codes stay in the second cache while columns pass

/// Rows of A as codes.
struct RoundedRows {
  int64_t k = 0;
  int8_t* codes = nullptr;  // [rows, k]
  float* scales = nullptr;  // [rows, stretches()]
  float* sums = nullptr;    // [rows, padded_halves(k)]: of the codes of each half of a group, times their scale

  int64_t stretches() const { return ceil_div(k, kInputs); }
};

}  // namespace nought::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

/// The sums of the lanes of some vectors, one or four: neighbours, then neighbours of those, then both halves.
template <int kRows>
HWY_INLINE void add_lanes(const Floats* totals, float* sums) {
  static_assert(kRows == 1 || kRows == 4);
  const Floats zero = _mm256_setzero_ps();
  const Floats first = _mm256_hadd_ps(totals[0], kRows == 4 ? totals[1] : zero);
  const Floats second = kRows == 4 ? _mm256_hadd_ps(totals[2], totals[3]) : zero;
  const Floats fours = _mm256_hadd_ps(first, second);
  const __m128 all = _mm_add_ps(_mm256_castps256_ps128(fours), _mm256_extractf128_ps(fours, 1));
  kRows == 4 ? _mm_storeu_ps(sums, all) : _mm_store_ss(sums, all);
}

/// The largest magnitude; an infinity or no number where x has one.
HWY_INLINE float largest_of(const float* x, int64_t count) {
  const Integers magnitude = _mm256_set1_epi32(0x7fffffff);
  Integers most = _mm256_setzero_si256();
  for (int64_t i = 0; i < count; i += 8)
    most = _mm256_max_epi32(most, _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(x + i)), magnitude));
  alignas(32) std::array<int32_t, 8> lanes;
  _mm256_store_si256(reinterpret_cast<Integers*>(lanes.data()), most);
  return std::bit_cast<float>(*std::max_element(lanes.begin(), lanes.end()));
}

/// Rounds up to kInputs floats, whole groups. Those with an infinity or no number among them get a scale that is no
/// number, and so do their products.
HWY_INLINE void round_stretch(const float* x, int64_t count, int8_t* codes, float& scale, float* sums) {
  const float largest = largest_of(x, count);
  const bool finite = largest <= std::numeric_limits<float>::max();
  const bool rounds = finite && largest > 1e-36f;  // below that 127 / largest may be infinite
  scale = finite ? (rounds ? largest / 127 : 0) : std::numeric_limits<float>::quiet_NaN();
  const Floats factor = _mm256_set1_ps(rounds ? 127 / largest : 0);
  for (int64_t half = 0; half < count / kHalf; ++half) {
    alignas(32) std::array<int32_t, kHalf> whole = {};
    if (rounds)
      for (size_t i = 0; i < kHalf; i += 8)
        _mm256_store_si256(reinterpret_cast<Integers*>(whole.data() + i),
                           _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + half * kHalf + i), factor)));
    int32_t sum = 0;
    for (size_t i = 0; i < kHalf; ++i)
      codes[half * kHalf + static_cast<int64_t>(i)] = static_cast<int8_t>(whole[i]), sum += whole[i];
    sums[half] = scale * static_cast<float>(sum);
  }
}

/// Rounds rows of A.
void round_rows(const Product& product, Interval rows, const RoundedRows& to) {
  const int64_t k = to.k, stretches = to.stretches();
  const Scratch wide(bytes_for<float>(k));
  auto* x = wide.data<float>();
  visit(product.inputs, [&](auto tag) HWY_ATTR {
    const auto* a = static_cast<const typename decltype(tag)::type*>(product.a);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      widen(a + row * product.lda, k, x);
      float* sums = to.sums + row * padded_halves(k);
      std::fill(sums + k / kHalf, sums + padded_halves(k), 0.0f);
      for (int64_t i = 0; i < stretches; ++i)
        round_stretch(x + i * kInputs, std::min(kInputs, k - i * kInputs), to.codes + row * k + i * kInputs,
                      to.scales[row * stretches + i], sums + i * (kInputs / kHalf));
    }
  });
}

/// 32 codes times 32 inputs: the sums of four neighbours.
template <bool kSigned>
HWY_INLINE Integers multiply_codes(Integers weights, Integers magnitudes, const int8_t* inputs) {
  // The sign of a weight moves to its input: a magnitude up to 128 times 127, twice, fits 16 bits.
  const Integers moved = kSigned ? _mm256_sign_epi8(bytes_32(inputs), weights) : bytes_32(inputs);
  return _mm256_madd_epi16(_mm256_maddubs_epi16(magnitudes, moved), _mm256_set1_epi16(1));
}

/// totals[r] += row r of some neighbouring rows times a stretch of a column.
template <int kRows, bool kSigned>
HWY_INLINE void add_stretch(const CodedColumn& column, const RoundedRows& x, int64_t first, Interval groups,
                            Floats* totals) {
  const Integers halves = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
  const int8_t* codes = x.codes + first * x.k;
  Floats parts[kRows];
  for (Floats& part : parts) part = _mm256_setzero_ps();
  for (int64_t group = groups.begin; group < groups.end; ++group) {
    const Integers weights = bytes_32(column.codes + group * kGroup);
    const Integers magnitudes = kSigned ? _mm256_abs_epi8(weights) : weights;
    double both;  // the scales of both halves
    std::memcpy(&both, column.scales + 2 * group, sizeof(both));
    const Floats scale = _mm256_permutevar_ps(_mm256_castpd_ps(_mm256_set1_pd(both)), halves);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const Integers products = multiply_codes<kSigned>(weights, magnitudes, codes + r * x.k + group * kGroup);
      parts[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(products), scale, parts[r]);
    }
  }
  const int64_t stretches = x.stretches();
  const float* scales = x.scales + first * stretches + groups.begin * kGroup / kInputs;
  for (int r = 0; r < kRows; ++r)
    totals[r] = _mm256_fmadd_ps(parts[r], _mm256_broadcast_ss(scales + r * stretches), totals[r]);
}

/// total - the minimums of a column times the sums of a row.
HWY_INLINE Floats less_mins(Floats total, const float* mins, const float* sums, int64_t halves) {
  for (int64_t half = 0; half < halves; half += 8)
    total = _mm256_fnmadd_ps(_mm256_loadu_ps(mins + half), _mm256_loadu_ps(sums + half), total);
  return total;
}

/// sums[r] = row r of some neighbouring rows times a column.
template <int kRows, bool kSigned>
HWY_INLINE void dot_rounded(const CodedColumn& column, const RoundedRows& x, int64_t first, float* sums) {
  const int64_t groups = x.k / kGroup, halves = padded_halves(x.k);
  Floats totals[kRows];
  for (Floats& total : totals) total = _mm256_setzero_ps();
  for (int64_t group = 0; group < groups; group += kInputs / kGroup)
    add_stretch<kRows, kSigned>(column, x, first, {group, std::min(groups, group + kInputs / kGroup)}, totals);
  if (!kSigned)
    for (int r = 0; r < kRows; ++r)
      totals[r] = less_mins(totals[r], column.mins, x.sums + (first + r) * halves, halves);
  add_lanes<kRows>(totals, sums);
}

/// Columns of C of some rows, one after the other.
class RoundedColumns {
 public:
  RoundedColumns(const Product& product, const RoundedRows& x)
      : product_(product),
        x_(x),
        room_(x.k + kRoom),
        halves_(bytes_for<float>(2 * padded_halves(x.k))),
        sums_(bytes_for<float>(kRowsAtOnce)) {
    std::fill_n(halves_.data<float>(), 2 * padded_halves(x.k), 0.0f);
  }

  void run(Interval rows, Interval columns) const {
    const Weight& weight = *product_.codes;
    CodedColumn column = in_room();
    if (!weight.is_blocks()) {
      column.is_signed = true;
      for (int64_t j = columns.begin; j < columns.end; ++j) multiply(rows, j, eight_bits(j, column));
      return;
    }
    for (int64_t j = columns.begin; j < columns.end;) {
      const auto [blocks, end] = stretch_at(weight, {j, columns.end});
      const UnpackRow unpack = unpack_row(*blocks.format->gguf);
      CodedColumn shown = column;
      shown.is_signed = is_signed(*blocks.format->gguf);
      for (const std::byte* row = blocks.bytes; j < end; ++j, row += blocks.row_bytes) {
        unpack(*blocks.format, row, x_.k, column);
        multiply(rows, j, shown);
      }
    }
  }

 private:
  struct Stretch {
    BlockRows blocks;
    int64_t end;
  };
  /// The first of these columns, as many as have one format.
  Stretch stretch_at(const Weight& weight, Interval columns) const {
    const auto band =
        std::ranges::find_if(weight.bands(), [&](const Weight::Band& each) { return columns.begin * x_.k < each.end; });
    const int64_t end = std::min(columns.end, band->end / x_.k);
    return {*rows_of_blocks(weight, {columns.begin, end}), end};
  }
  CodedColumn in_room() const {
    auto* scales = halves_.data<float>();
    return {.codes = room_.data<int8_t>(), .scales = scales, .mins = scales + padded_halves(x_.k)};
  }
  /// Codes of Q8_0 in a tensor of their own.
  CodedColumn eight_bits(int64_t j, CodedColumn column) const {
    const f16_t* stored = product_.codes->scales.data<f16_t>() + j * (x_.k / kCodeBlock);
    for (int64_t i = 0; i < x_.k / kCodeBlock; ++i)
      column.scales[2 * i] = column.scales[2 * i + 1] = half_to_float(stored + i);
    column.codes = product_.codes->values.data<int8_t>() + j * x_.k;
    return column;
  }
  template <bool kSigned>
  void dot(Interval rows, const CodedColumn& column) const {
    auto* sums = sums_.data<float>();
    int64_t row = rows.begin;
    for (; row + 4 <= rows.end; row += 4) dot_rounded<4, kSigned>(column, x_, row, sums + row - rows.begin);
    for (; row < rows.end; ++row) dot_rounded<1, kSigned>(column, x_, row, sums + row - rows.begin);
  }
  void multiply(Interval rows, int64_t j, const CodedColumn& column) const {
    column.is_signed ? dot<true>(rows, column) : dot<false>(rows, column);
    visit(product_.inputs,
          [&](auto tag) { finish_column<typename decltype(tag)::type>(product_, rows, j, sums_.data<float>()); });
  }

  const Product& product_;
  const RoundedRows& x_;
  Scratch room_, halves_, sums_;
};

void multiply_columns(const Product& product, const RoundedRows& x, Interval columns) {
  const RoundedColumns work(product, x);
  for (int64_t row = 0; row < product.sizes.m; row += kRowsAtOnce)
    work.run({row, std::min(product.sizes.m, row + kRowsAtOnce)}, columns);
}

constexpr bool kRounds = true;

#else

void round_rows(const Product& /*product*/, Interval /*rows*/, const RoundedRows& /*to*/) {}
void multiply_columns(const Product& /*product*/, const RoundedRows& /*x*/, Interval /*columns*/) {}

constexpr bool kRounds = false;

#endif

bool rounds_here() { return kRounds; }

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {
HWY_EXPORT(rounds_here);
HWY_EXPORT(round_rows);
HWY_EXPORT(multiply_columns);

namespace {

bool has_rounded_kernel(const Weight& weight) {
  if (!weight.is_blocks()) return weight.kind() == CodeKind::q8_0;
  return std::all_of(weight.bands().begin(), weight.bands().end(),
                     [](const Weight::Band& band) { return band.format->gguf && band.format->block % kGroup == 0; });
}

}  // namespace

bool has_rounded_products() { return HWY_DYNAMIC_DISPATCH(rounds_here)(); }

bool multiplies_rounded(const Product& product) {
  return product.codes != nullptr && product.transpose_b && !product.transpose_a &&
         has_rounded_kernel(*product.codes) && has_rounded_products();
}

void multiply_rounded(const Product& product) {
  const auto [m, n, k] = product.sizes;
  const Scratch codes(m * k), scales(bytes_for<float>(m * ceil_div(k, kInputs))),
      sums(bytes_for<float>(m * padded_halves(k)));
  const RoundedRows x{
      .k = k, .codes = codes.data<int8_t>(), .scales = scales.data<float>(), .sums = sums.data<float>()};
  parallel_rows(m, k, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(round_rows)(product, Interval{begin, end}, x);
  });
  // Columns by 16: threads do not share the lines of c.
  parallel_for(n, m * k, 16, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(multiply_columns)(product, x, Interval{begin, end});
  });
}

}  // namespace nought::cpu
#endif
