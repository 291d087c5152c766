// How values become the blocks of GGUF's types: the counterpart of gguf_blocks.cpp.
//
// Types with one scale for 32 elements have the bytes that ggml's quantize_row functions make of the same values, but
// for q8_0, whose codes fit the scale as it is stored. IQ4_NL and types with scales of scales (the K types, IQ4_XS)
// choose the scale of each few elements by least squares out of about twenty, as ggml does; errors of large values
// weigh more.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "nought/io/convert.h"
#include "nought/io/gguf_blocks.h"
#include "nought/io/weight_formats.h"

namespace nought {

namespace {

constexpr int kNarrow = 32;  // elements of a block with one scale
constexpr int kWide = 256;   // elements of a block with scales of scales
constexpr int kTries = 9;    // scales on each side of the plain one

void put(std::byte* block, int64_t offset, int value) { block[offset] = static_cast<std::byte>(value); }
void add_bits(std::byte* block, int64_t offset, int bits) { block[offset] |= static_cast<std::byte>(bits); }

/// Stores a value as f16 and returns what is stored.
float put_half(std::byte* block, int64_t offset, float value) {
  const f16_t half(value);
  std::memcpy(block + offset, &half.bits, sizeof(half.bits));
  return half;
}

float inverse_of(float scale) { return scale != 0 ? 1 / scale : 0; }
int rounded(float value, int least, int most) { return std::clamp(static_cast<int>(std::lrint(value)), least, most); }

/// The nearest whole number of a value between `least` and `most`, which are small: a sum of so large a number has no
/// bits behind the point. Every x86-64 CPU does four of these at once, and nearbyint() alone.
float nearest_in(float value, float least, float most) {
  constexpr float kNoFraction = 12582912;  // 1.5 * 2^23
  return (std::min(std::max(value, least), most) + kNoFraction) - kNoFraction;
}

float largest(const float* x, int count) {
  return *std::max_element(x, x + count, [](float a, float b) { return std::abs(a) < std::abs(b); });
}

/// Sixteen bytes of nibbles: the low ones are the first half of 32 elements.
template <class F>
void put_32(std::byte* nibbles, const F& code) {
  for (int j = 0; j < kNarrow / 2; ++j) put(nibbles, j, (code(j) & 15) | (code(j + kNarrow / 2) & 15) << 4);
}

/// The fifth bits of 32 codes as one word.
template <class F>
void put_fifth_bits(std::byte* target, const F& code) {
  uint32_t word = 0;
  for (int j = 0; j < kNarrow; ++j) word |= static_cast<uint32_t>(code(j) >> 4 & 1) << j;
  std::memcpy(target, &word, sizeof(word));
}

/// q4_0 and q5_0: the value of largest magnitude has the least code, whose sign the scale takes over.
void encode_biased(const float* x, int bits, std::byte* block) {
  const int half = 1 << (bits - 1);
  const float scale = largest(x, kNarrow) / static_cast<float>(-half), inverse = inverse_of(scale);
  put_half(block, 0, scale);
  const auto code = [&](int j) {
    return std::min(2 * half - 1, static_cast<int>(x[j] * inverse + static_cast<float>(half) + 0.5f));
  };
  if (bits == 5) put_fifth_bits(block + 2, code);
  put_32(block + (bits == 5 ? 6 : 2), code);
}

/// q4_1 and q5_1.
void encode_with_minimum(const float* x, int bits, std::byte* block) {
  const auto [min, max] = std::minmax_element(x, x + kNarrow);
  const int most = (1 << bits) - 1;
  const float least = *min, scale = (*max - least) / static_cast<float>(most), inverse = inverse_of(scale);
  put_half(block, 0, scale), put_half(block, 2, least);
  const auto code = [&](int j) { return std::min(most, static_cast<int>((x[j] - least) * inverse + 0.5f)); };
  if (bits == 5) put_fifth_bits(block + 4, code);
  put_32(block + (bits == 5 ? 8 : 4), code);
}

/// With the scale as it is stored, so that no value is off by more than half a step of it.
void encode_q8_0(const float* x, std::byte* block) {
  const float inverse = inverse_of(put_half(block, 0, std::abs(largest(x, kNarrow)) / 127));
  for (int j = 0; j < kNarrow; ++j)
    put(block, 2 + j, static_cast<int>(std::clamp<long>(std::lround(x[j] * inverse), -127, 127)));
}

/// The power of two that lets the largest value be between 4 and 8, where e2m1 ends at 6.
void encode_mxfp4(const float* x, std::byte* block) {
  const float most = std::abs(largest(x, kNarrow));
  const int exponent = most > 0 ? std::max(0, static_cast<int>(std::floor(std::log2(most))) - 2 + 127) : 0;
  put(block, 0, exponent);
  const float scale = e8m0_value(static_cast<uint8_t>(exponent));
  put_32(block + 1, [&](int j) {
    int best = 0;
    for (int code = 1; code < 16; ++code)
      if (std::abs(kE2m1[static_cast<size_t>(code)] * scale - x[j]) <
          std::abs(kE2m1[static_cast<size_t>(best)] * scale - x[j]))
        best = code;
    return best;
  });
}

float iq4_value(size_t code) { return static_cast<float>(kIq4[code]); }

/// The code of ggml's table that is nearest to a value.
int nearest_iq4(float value) {
  int code = 0;
  for (size_t i = 0; i + 1 < kIq4.size(); ++i) code += 2 * value > static_cast<float>(kIq4[i] + kIq4[i + 1]) ? 1 : 0;
  return code;
}

/// The scale with which codes explain most of the values' squares, out of those near `most` / the value of largest
/// magnitude; nearest(x / scale) is what a code stands for.
template <class F>
float fit_scale(const float* x, int count, float most, float step, const F& nearest) {
  const float peak = largest(x, count);
  float best = 0, scale = 0;
  if (peak == 0) return 0;
  for (int i = -kTries; i <= kTries; ++i) {
    const float inverse = (most + step * static_cast<float>(i)) / peak;
    float along = 0, squares = 0;
    for (int j = 0; j < count; ++j) {
      const float weight = x[j] * x[j], code = nearest(x[j] * inverse);
      along += weight * x[j] * code, squares += weight * code * code;
    }
    if (squares > 0 && along * along > best * squares) best = along * along / squares, scale = along / squares;
  }
  return scale;
}

/// For codes from -half to half - 1.
float fit_biased(const float* x, int count, int half) {
  const auto least = static_cast<float>(-half), most = static_cast<float>(half - 1);
  return fit_scale(x, count, least, 0.1f, [&](float value) { return nearest_in(value, least, most); });
}

float fit_iq4(const float* x) {
  return fit_scale(x, kNarrow, iq4_value(0), 1,
                   [](float value) { return iq4_value(static_cast<size_t>(nearest_iq4(value))); });
}

/// A value is scale * code - minimum.
struct ScaleAndMinimum {
  float scale = 0, minimum = 0;
};

/// The minimum is not below zero, as scales of minima have no sign.
ScaleAndMinimum fit_with_minimum(const float* x, int count, float most) {
  const auto [min, max] = std::minmax_element(x, x + count);
  const float least = std::min(0.0f, *min), range = *max - least;
  if (range <= 0) return {0, -least};
  float mean = 0;
  for (int j = 0; j < count; ++j) mean += x[j] * x[j];
  mean = std::sqrt(mean / static_cast<float>(count));
  ScaleAndMinimum best{range / most, -least};  // where all values have one code, no line fits best
  float least_error = std::numeric_limits<float>::infinity();
  for (int i = -kTries; i <= kTries; ++i) {
    const float inverse = (most + 0.1f * static_cast<float>(i)) / range;
    float w = 0, wl = 0, wll = 0, wx = 0, wxl = 0, wxx = 0;
    for (int j = 0; j < count; ++j) {
      const float weight = mean + std::abs(x[j]);
      const float code = nearest_in((x[j] - least) * inverse, 0, most);
      w += weight, wl += weight * code, wll += weight * code * code;
      wx += weight * x[j], wxl += weight * x[j] * code, wxx += weight * x[j] * x[j];
    }
    const float determinant = w * wll - wl * wl;
    if (determinant <= 0) continue;
    float scale = (w * wxl - wx * wl) / determinant, offset = (wll * wx - wl * wxl) / determinant;
    if (offset > 0) offset = 0, scale = wxl / wll;
    const float error =
        wxx + scale * scale * wll + offset * offset * w + 2 * (scale * offset * wl - scale * wxl - offset * wx);
    if (scale > 0 && error < least_error) least_error = error, best = {scale, -offset};
  }
  return best;
}

/// The codes of a block's scales in so many bits with a sign, and the scale that they share.
template <size_t N>
std::pair<float, std::array<int, N>> codes_of_scales(const std::array<float, N>& scales, int half, std::byte* block,
                                                     int64_t offset) {
  const float shared = put_half(block, offset, largest(scales.data(), N) / static_cast<float>(-half));
  const float inverse = inverse_of(shared);
  std::array<int, N> codes{};
  for (size_t i = 0; i < N; ++i) codes[i] = rounded(scales[i] * inverse, -half, half - 1);
  return {shared, codes};
}

void encode_q6_k(const float* x, std::byte* block) {
  std::array<float, 16> scales{};
  for (size_t i = 0; i < scales.size(); ++i) scales[i] = fit_biased(x + 16 * i, 16, 32);
  const auto [shared, codes] = codes_of_scales(scales, 128, block, 208);
  std::fill_n(block, 192, std::byte{0});
  for (int i = 0; i < kWide; ++i) {
    const int scale = codes[static_cast<size_t>(i) / 16];
    const int q = rounded(x[i] * inverse_of(shared * static_cast<float>(scale)), -32, 31) + 32;
    const int half = i / 128, quarter = i / 32 % 4, l = i % 32;
    add_bits(block, 64 * half + 32 * (quarter % 2) + l, (q & 15) << (quarter < 2 ? 0 : 4));
    add_bits(block, 128 + 32 * half + l, (q >> 4) << (2 * quarter));
    if (i % 16 == 0) put(block, 192 + i / 16, scale);
  }
}

/// Where the two low bits of element i of 256 lie: byte 32h + l, bits 2k is element 128h + 32k + l.
void add_two_bits(std::byte* codes, int i, int bits) {
  add_bits(codes, i / 128 * 32 + i % 32, (bits & 3) << (2 * (i / 32 % 4)));
}

void encode_q3_k(const float* x, std::byte* block) {
  std::array<float, 16> scales{};
  for (size_t i = 0; i < scales.size(); ++i) scales[i] = fit_biased(x + 16 * i, 16, 4);
  const auto [shared, codes] = codes_of_scales(scales, 32, block, 108);
  std::fill_n(block, 108, std::byte{0});
  for (int sub = 0; sub < 16; ++sub) {
    const int six = codes[static_cast<size_t>(sub)] + 32;
    add_bits(block, 96 + sub % 8, (six & 15) << (sub < 8 ? 0 : 4));
    add_bits(block, 104 + sub % 4, (six >> 4) << (2 * (sub / 4)));
  }
  for (int i = 0; i < kWide; ++i) {
    const float scale = shared * static_cast<float>(codes[static_cast<size_t>(i) / 16]);
    const int q = rounded(x[i] * inverse_of(scale), -4, 3) + 4;
    add_two_bits(block + 32, i, q);
    add_bits(block, i % 32, (q >> 2) << (i / 32));
  }
}

/// Scales and minima of a block's parts, and their codes in as many bits as `most` has, both without a sign.
template <size_t N>
struct SharedMinima {
  std::array<int, N> scale_codes{}, minimum_codes{};
  float scale = 0, minimum = 0;

  SharedMinima(const float* x, float most_code, float most_scale, std::byte* block, int64_t offset) {
    constexpr int kCount = kWide / N;
    std::array<ScaleAndMinimum, N> fits{};
    float scales = 0, minima = 0;
    for (size_t i = 0; i < N; ++i) {
      fits[i] = fit_with_minimum(x + kCount * i, kCount, most_code);
      scales = std::max(scales, fits[i].scale), minima = std::max(minima, fits[i].minimum);
    }
    scale = put_half(block, offset, scales / most_scale), minimum = put_half(block, offset + 2, minima / most_scale);
    for (size_t i = 0; i < N; ++i) {
      scale_codes[i] = rounded(fits[i].scale * inverse_of(scale), 0, static_cast<int>(most_scale));
      minimum_codes[i] = rounded(fits[i].minimum * inverse_of(minimum), 0, static_cast<int>(most_scale));
    }
  }
  int code(float x, int part, int most) const {
    const auto i = static_cast<size_t>(part);
    const float step = scale * static_cast<float>(scale_codes[i]);
    return rounded((x + minimum * static_cast<float>(minimum_codes[i])) * inverse_of(step), 0, most);
  }
};

void encode_q2_k(const float* x, std::byte* block) {
  const SharedMinima<16> parts(x, 3, 15, block, 80);
  std::fill_n(block, 80, std::byte{0});
  for (size_t i = 0; i < 16; ++i)
    put(block, static_cast<int64_t>(i), parts.scale_codes[i] | parts.minimum_codes[i] << 4);
  for (int i = 0; i < kWide; ++i) add_two_bits(block + 16, i, parts.code(x[i], i / 16, 3));
}

/// Six bits each of scale and minimum of eight parts in twelve bytes.
void put_six_bits(std::byte* s, const SharedMinima<8>& parts) {
  for (int j = 0; j < 8; ++j) {
    const int scale = parts.scale_codes[static_cast<size_t>(j)], minimum = parts.minimum_codes[static_cast<size_t>(j)];
    if (j < 4) {
      add_bits(s, j, scale), add_bits(s, j + 4, minimum);
    } else {
      add_bits(s, j + 4, (scale & 15) | (minimum & 15) << 4);
      add_bits(s, j - 4, (scale >> 4) << 6), add_bits(s, j, (minimum >> 4) << 6);
    }
  }
}

void encode_q4_or_q5_k(const float* x, int bits, std::byte* block) {
  const int most = (1 << bits) - 1;
  const SharedMinima<8> parts(x, static_cast<float>(most), 63, block, 0);
  std::byte *fifth = block + 16, *codes = bits == 5 ? block + 48 : block + 16;
  std::fill(block + 4, codes + kWide / 2, std::byte{0});
  put_six_bits(block + 4, parts);
  for (int i = 0; i < kWide; ++i) {
    const int j = i / 32, l = i % 32, q = parts.code(x[i], j, most);
    add_bits(codes, j / 2 * 32 + l, (q & 15) << (j % 2 == 0 ? 0 : 4));
    if (bits == 5) add_bits(fifth, l, (q >> 4) << j);
  }
}

void encode_iq4_nl(const float* x, std::byte* block) {
  const float inverse = inverse_of(put_half(block, 0, fit_iq4(x)));
  put_32(block + 2, [&](int j) { return nearest_iq4(x[j] * inverse); });
}

void encode_iq4_xs(const float* x, std::byte* block) {
  std::array<float, 8> scales{};
  for (size_t i = 0; i < scales.size(); ++i) scales[i] = fit_iq4(x + 32 * i);
  const auto [shared, codes] = codes_of_scales(scales, 32, block, 0);
  std::fill(block + 2, block + 8, std::byte{0});
  for (int i = 0; i < 8; ++i) {
    const int six = codes[static_cast<size_t>(i)] + 32;
    add_bits(block, 2 + i / 4, (six >> 4) << (2 * (i % 4)));
    add_bits(block, 4 + i / 2, (six & 15) << (i % 2 == 0 ? 0 : 4));
    const float inverse = inverse_of(shared * static_cast<float>(codes[static_cast<size_t>(i)]));
    put_32(block + 8 + 16 * i, [&](int j) { return nearest_iq4(x[32 * i + j] * inverse); });
  }
}

void encode_block(GgufType type, const float* x, std::byte* block) {
  switch (type) {
    case GgufType::q4_0:
      return encode_biased(x, 4, block);
    case GgufType::q4_1:
      return encode_with_minimum(x, 4, block);
    case GgufType::q5_0:
      return encode_biased(x, 5, block);
    case GgufType::q5_1:
      return encode_with_minimum(x, 5, block);
    case GgufType::q8_0:
      return encode_q8_0(x, block);
    case GgufType::q2_k:
      return encode_q2_k(x, block);
    case GgufType::q3_k:
      return encode_q3_k(x, block);
    case GgufType::q4_k:
      return encode_q4_or_q5_k(x, 4, block);
    case GgufType::q5_k:
      return encode_q4_or_q5_k(x, 5, block);
    case GgufType::q6_k:
      return encode_q6_k(x, block);
    case GgufType::iq4_nl:
      return encode_iq4_nl(x, block);
    case GgufType::iq4_xs:
      return encode_iq4_xs(x, block);
    case GgufType::mxfp4:
      return encode_mxfp4(x, block);
    case GgufType::f32:
    case GgufType::f16:
    case GgufType::bf16:
      break;  // whole runs of them are converted
  }
}

}  // namespace

void encode_blocks(GgufType type, const float* values, int64_t blocks, std::byte* bytes) {
  const WeightFormat& format = weight_format(type);
  if (format.block == 1)
    return convert_elements(DType::f32, reinterpret_cast<const std::byte*>(values), plain_dtype(type), bytes, blocks);
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < blocks; ++i) encode_block(type, values + i * format.block, bytes + i * format.block_bytes);
}

}  // namespace nought
