// Tensors in fewer bits: 8-bit codes, stochastic rounding, the grids of the 8-bit float formats.
#pragma once

#include "nought/kernels/weight.h"

namespace nought {

/// Block-wise dynamic 8-bit codes (arXiv 2110.02861; the two maps are in kernels/dynamic_code.h): in each block of
/// `block` elements, scale = the element of largest magnitude, sign included, and codes = the nearest values of the map
/// to x / scale. So the largest element is exact, and quantizing what was dequantized changes nothing. x: [n] f32,
/// codes: [n] u8, scales: [ceil(n / block)] f32. For the unsigned map x >= 0, and what is not 0 gets no code of 0: a
/// second moment of 0 under a first one that is not would make a step without bounds.
struct Quantize8 {
  Tensor x, codes, scales;
  int64_t block = 256;
  bool is_signed = true;

  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("codes", codes, kWrites);
    v("scales", scales, kWrites);
    v("block", block);
    v("is_signed", is_signed);
  }
};

/// x = map[codes] * scale of the block.
struct Dequantize8 {
  Tensor codes, scales, x;
  int64_t block = 256;
  bool is_signed = true;

  template <class V>
  void visit(V& v) const {
    v("codes", codes, kReads);
    v("scales", scales, kReads);
    v("x", x, kWrites);
    v("block", block);
    v("is_signed", is_signed);
  }
};

/// The codes and scales of a weight (kernels/weight.h), as GGUF's Q8_0 has them: in each block scale = the largest
/// magnitude / 127, rounded to f16, and codes = x / scale, rounded to the nearest and halves away from zero. So
/// |x - code * scale| <= scale / 2. Among the subnormal numbers of f16 the next larger scale is taken where the nearest
/// does not reach the largest value, or the next is exact. Quantizing what was dequantized changes no value. A block
/// with a value that is not finite, or beyond 127 * 65504, gets the scale NaN. x: float, rows of whole blocks; codes:
/// i8 and as many; scales: f16, one for each block.
struct QuantizeBlocks {
  Tensor x, codes, scales;

  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("codes", codes, kWrites);
    v("scales", scales, kWrites);
  }
};

/// x = the values of the codes, rounded once to x's float dtype.
struct DequantizeBlocks {
  Weight weight;
  Tensor x;

  template <class V>
  void visit(V& v) const {
    weight.visit(v, "codes", kReads);
    v("x", x, kWrites);
  }
};

/// The scales of 4-bit codes that are codes themselves (four_bits.h): scales[i] = nested_values()[codes[i]] *
/// nested[1 + i / kNestedBlock] + nested[0], product and sum rounded to f32. codes: u8 [n]; nested: f32 [1 + ceil(n /
/// kNestedBlock)]; scales: f32 [n].
struct DecodeScales {
  Tensor codes, nested, scales;

  template <class V>
  void visit(V& v) const {
    v("codes", codes, kReads);
    v("nested", nested, kReads);
    v("scales", scales, kWrites);
  }
};

/// Values that share a scale in the formats of OCP's Microscaling Formats.
inline constexpr int64_t kMxBlock = 32;

/// Codes in E4M3 with a power of two as scale for each kMxBlock neighbours, the last ones alone if they are fewer:
/// MXFP8 of OCP's Microscaling Formats 1.0. The scale is the least that brings the largest magnitude to 448 or below;
/// codes are x / scale, rounded to the nearest and ties to even, but to no value that x's dtype can not hold. A block
/// with a value that is not finite becomes NaN. x: [n] float; codes: [n] u8; scales: [ceil(n / kMxBlock)] u8, the
/// exponents plus 127.
struct EncodeMxfp8 {
  Tensor x, codes, scales;

  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("codes", codes, kWrites);
    v("scales", scales, kWrites);
  }
};

/// x = code * scale, which is exact in f32 and in bf16.
struct DecodeMxfp8 {
  Tensor codes, scales, x;

  template <class V>
  void visit(V& v) const {
    v("codes", codes, kReads);
    v("scales", scales, kReads);
    v("x", x, kWrites);
  }
};

/// y = x rounded to y's 16-bit float dtype, up or down at random, so that the mean is x (arXiv 2010.06192): element i
/// draws number first + i of `key`. What y can hold stays as it is; a finite x stays finite. x: [n] f32.
struct RoundStochastic {
  Tensor x, y;
  uint64_t key = 0;
  int64_t first = 0;

  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("y", y, kWrites);
    v("key", key);
    v("first", first);
  }
};

/// The two 8-bit formats of the OCP specification ("OFP8", 2023).
enum class Fp8 : uint8_t {
  e4m3,  // The largest value is 448; there is no infinity.
  e5m2,  // The largest value is 57344.
};
std::string_view name_of(Fp8 format);

/// y = x * scale on the grid of an 8-bit format, to the nearest and ties to even, times 1 / scale: what a product of
/// 8-bit factors would read. Finite values saturate at the largest one. x, y: the same float dtype; with a power of two
/// as scale every value of both formats is exact in bf16. With `largest`, [1] f32, a largest magnitude, the scale is
/// the one that brings it just below the format's largest value, over 2^margin (fp8_scale() in kernels/rounding.h).
struct RoundFp8 {
  Tensor x, y, largest = {};
  Fp8 format = Fp8::e4m3;
  double scale = 1;  // without `largest`
  int margin = 0;    // with it

  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("y", y, kWrites);
    v("largest", largest, kReads.if_defined());
    v("format", format);
    v("scale", scale);
    v("margin", margin);
  }
};

}  // namespace nought
