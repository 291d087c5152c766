// Words of 32 bits, each an fp32 number or a pair of bf16: how vectors of them are loaded, transposed and multiplied.
// This file is compiled once per target.
//
// An element of a product is one sum along k, of pairs or of single elements one after the other. Kernels that add in
// this order have the same bits, however they get their operands.
#if defined(NOUGHT_KERNELS_CPU_WORDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NOUGHT_KERNELS_CPU_WORDS_INL_H_
#undef NOUGHT_KERNELS_CPU_WORDS_INL_H_
#else
#define NOUGHT_KERNELS_CPU_WORDS_INL_H_
#endif

#include "nought/base/math.h"
#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

using FloatVector = hn::Vec<F32>;

inline int64_t lanes() { return static_cast<int64_t>(hn::Lanes(F32())); }

/// Multiply-adds of fp32.
struct Fma {
  static HWY_INLINE FloatVector add(FloatVector sum, FloatVector a, FloatVector b) { return hn::MulAdd(a, b, sum); }
};

#if HWY_TARGET == HWY_AVX3

/// Dot products of pairs of bf16, which Highway 1.0.3 does not know. Only where has_bf16_units().
struct Dots {
  static HWY_INLINE FloatVector add(FloatVector sum, FloatVector a, FloatVector b) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
    return sum;
  }
};

#endif

// --- transposition ---

/// Transposes a square of lanes() vectors.
HWY_INLINE void transpose_words(FloatVector* rows) {
#if HWY_TARGET == HWY_AVX3
  __m512 t[16];
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) transpose_blocks(rows + i);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_f32x4(rows[i].raw, rows[i + 4].raw, 0x88);
    t[i + 4] = _mm512_shuffle_f32x4(rows[i].raw, rows[i + 4].raw, 0xdd);
    t[i + 8] = _mm512_shuffle_f32x4(rows[i + 8].raw, rows[i + 12].raw, 0x88);
    t[i + 12] = _mm512_shuffle_f32x4(rows[i + 8].raw, rows[i + 12].raw, 0xdd);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    rows[i] = FloatVector{_mm512_shuffle_f32x4(t[i], t[i + 8], 0x88)};
    rows[i + 8] = FloatVector{_mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd)};
  }
#elif HWY_TARGET == HWY_AVX2
  const F32 d;
  transpose_blocks(rows);
  transpose_blocks(rows + 4);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const auto lower = hn::ConcatLowerLower(d, rows[i + 4], rows[i]);
    rows[i + 4] = hn::ConcatUpperUpper(d, rows[i + 4], rows[i]);
    rows[i] = lower;
  }
#elif HWY_TARGET != HWY_SCALAR
  transpose_blocks(rows);
#else
  (void)rows;
#endif
}

/// to = the transpose of a square of lanes() x lanes() words.
HWY_INLINE void transpose(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  const F32 d;
  FloatVector rows[hn::MaxLanes(F32())];
  for (int64_t i = 0; i < lanes(); ++i) rows[i] = hn::LoadU(d, from + i * from_stride);
  transpose_words(rows);
  for (int64_t i = 0; i < lanes(); ++i) hn::StoreU(rows[i], d, to + i * to_stride);
}

// --- what words consist of ---

/// fp32, or f16 widened: a word is an element.
template <class T>
struct WideWords {
  using Element = T;
  static constexpr int64_t kElements = 1;  // in a word
  static constexpr int64_t kFactors = 1;   // factors that a word is multiplied by
  static constexpr bool kDotted = false;   // factors are pairs of bf16, not floats

  template <class Access>
  static HWY_INLINE FloatVector load(const T* from, Access access) {
    return access.load(F32(), from);
  }
  /// Words of two rows side by side have one row alone.
  template <class Access>
  static HWY_INLINE FloatVector load_rows(const T* from, int64_t /*stride*/, bool /*has_second*/, Access access) {
    return access.load(F32(), from);
  }
  static HWY_INLINE FloatVector add(FloatVector sum, const float* factors, FloatVector word) {
    return Fma::add(sum, hn::Set(F32(), *factors), word);
  }
};

/// Pairs of bf16.
struct PairWords {
  using Element = bf16_t;
  static constexpr int64_t kElements = 2;

  static HWY_INLINE FloatVector load(const bf16_t* from, Whole /*access*/) {
    return hn::LoadU(F32(), reinterpret_cast<const float*>(from));
  }
  /// The first elements of a vector of words; the others are 0.
  static HWY_INLINE FloatVector load(const bf16_t* from, Partial access) {
    HWY_ALIGN bf16_t elements[2 * hn::MaxLanes(F32())] = {};
    std::memcpy(elements, from, access.count * sizeof(bf16_t));
    return hn::Load(F32(), reinterpret_cast<const float*>(elements));
  }
  /// Words (from[i], from[stride + i]); 0 in place of a second row that is not there.
  template <class Access>
  static HWY_INLINE FloatVector load_rows(const bf16_t* from, int64_t stride, bool has_second, Access access) {
    const F32 d;
    const Bits32 bits;
    const auto low = hn::ShiftRight<16>(hn::BitCast(bits, access.load(d, from)));
    if (!has_second) return hn::BitCast(d, low);
    return hn::BitCast(d, hn::Or(low, hn::BitCast(bits, access.load(d, from + stride))));
  }
};

/// Pairs that are widened: their elements are multiplied one after the other, by floats.
struct WidenedPairs : PairWords {
  static constexpr int64_t kFactors = 2;
  static constexpr bool kDotted = false;

  static HWY_INLINE FloatVector add(FloatVector sum, const float* factors, FloatVector word) {
    const F32 d;
    const Bits32 bits;
    const auto low = hn::BitCast(d, hn::ShiftLeft<16>(hn::BitCast(bits, word)));
    const auto high = hn::BitCast(d, hn::And(hn::BitCast(bits, word), hn::Set(bits, 0xFFFF0000)));
    return Fma::add(Fma::add(sum, hn::Set(d, factors[0]), low), hn::Set(d, factors[1]), high);
  }
};

#if HWY_TARGET == HWY_AVX3

/// Pairs that are multiplied as such, by pairs.
struct DottedPairs : PairWords {
  static constexpr int64_t kFactors = 1;
  static constexpr bool kDotted = true;

  static HWY_INLINE FloatVector add(FloatVector sum, const float* factors, FloatVector word) {
    return Dots::add(sum, hn::Set(F32(), *factors), word);
  }
};

#endif

/// words[i] = the words at place i of lanes() rows. Rows are fetched `ahead` elements before they are read.
template <class Words>
HWY_INLINE void load_square(const typename Words::Element* from, int64_t stride, int64_t ahead, FloatVector* words) {
  constexpr int kLanes = hn::MaxLanes(F32());
  for (int i = 0; i < kLanes; ++i, from += stride) {
    if (kLanes > 4 && i % 4 == 0) asm("" : "+r"(from));  // one address for four rows, not a register for each
    hwy::Prefetch(from + ahead);
    words[i] = Words::load(from, Whole{});
  }
  transpose_words(words);
}

/// load_square() into memory: words, `width` apart.
template <class Words>
HWY_INLINE void transpose_square(const typename Words::Element* from, int64_t stride, int64_t ahead, float* to,
                                 int64_t width) {
  constexpr int kLanes = hn::MaxLanes(F32());
  FloatVector words[kLanes];
  load_square<Words>(from, stride, ahead, words);
  for (int i = 0; i < kLanes; ++i) hn::StoreU(words[i], F32(), to + i * width);
}

/// transpose_square() of `rows` rows of `count` elements, both at least 1: the rest of the words is 0. Words that have
/// no element are not written.
template <class Words>
HWY_NOINLINE void transpose_part(const typename Words::Element* from, int64_t stride, int64_t rows, int64_t count,
                                 float* to, int64_t width) {
  const F32 d;
  constexpr int64_t kLanes = hn::MaxLanes(F32());
  FloatVector words[kLanes];
  for (int64_t i = 0; i < kLanes; ++i)
    words[i] = i < rows ? Words::load(from + i * stride, Partial(static_cast<size_t>(count))) : hn::Zero(d);
  transpose_words(words);
  for (int64_t i = 0; i < ceil_div(count, Words::kElements); ++i) hn::StoreU(words[i], d, to + i * width);
}

/// to: words, `width` apart = `rows` rows of `count` elements, at most lanes() of them, `stride` apart, transposed.
template <class Words>
HWY_INLINE void transpose_rows(const typename Words::Element* from, int64_t stride, int64_t rows, int64_t count,
                               int64_t ahead, float* to, int64_t width) {
  constexpr int64_t kLanes = hn::MaxLanes(F32()), kStep = kLanes * Words::kElements;
  int64_t p = 0;
  if (rows == kLanes)
    for (; p + kStep <= count; p += kStep, to += kLanes * width)
      transpose_square<Words>(from + p, stride, ahead, to, width);
  for (; p < count; p += kStep, to += kLanes * width)
    transpose_part<Words>(from + p, stride, rows, std::min(kStep, count - p), to, width);
}

// --- products of few rows by a panel of words ---

/// Rows and vectors of a tile: its sums, the panel's vectors and a factor stay in registers.
inline constexpr int kTileRows = 4, kTileVectors = 2;

/// sums: [rows, columns] += factors of rows, `stride` apart, times a panel: [words, columns], for kRows rows and
/// kVectors vectors.
template <class Words, int kRows, int kVectors>
HWY_INLINE void add_tile(const float* factors, int64_t stride, const float* panel, int64_t columns, int64_t words,
                         float* sums) {
  const F32 d;
  FloatVector tile[kRows][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) tile[r][v] = hn::LoadU(d, sums + r * columns + v * lanes());
  for (int64_t p = 0; p < words; ++p, factors += Words::kFactors, panel += columns) {
    FloatVector word[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) word[v] = hn::LoadU(d, panel + v * lanes());
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) tile[r][v] = Words::add(tile[r][v], factors + r * stride, word[v]);
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) hn::StoreU(tile[r][v], d, sums + r * columns + v * lanes());
}

/// add_tile() for all of `rows` rows and `count` columns, rounded up to whole vectors.
template <class Words>
HWY_INLINE void add_tiles(const float* factors, int64_t stride, const float* panel, int64_t columns, int64_t words,
                          float* sums, int64_t rows, int64_t count) {
  const int64_t vectors = ceil_div(count, lanes());
  int64_t row = 0;
  const auto add_rows = [&](auto group) HWY_ATTR {
    constexpr int kRows = decltype(group)::value;
    for (; row + kRows <= rows; row += kRows) {
      const float* at = factors + row * stride;
      float* to = sums + row * columns;
      int64_t v = 0;
      for (; v + kTileVectors <= vectors; v += kTileVectors)
        add_tile<Words, kRows, kTileVectors>(at, stride, panel + v * lanes(), columns, words, to + v * lanes());
      for (; v < vectors; ++v)
        add_tile<Words, kRows, 1>(at, stride, panel + v * lanes(), columns, words, to + v * lanes());
    }
  };
  add_rows(std::integral_constant<int, kTileRows>());
  add_rows(std::integral_constant<int, 2>());
  add_rows(std::integral_constant<int, 1>());
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
