// Quantizers of training: a group of values is replaced by the nearest values that so few bits can hold.
//
// Design goals: the values of DeepSpeed's quantizers (compression/utils.py, runtime/quantize.py) in fp32, to the bit;
// what kernels compute on other machines is defined here. A group of zeros stays zeros, where DeepSpeed gives NaN.
// Non-goals: codes for files, which have the formats of io/weight_formats.h.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace nought {

/// The two scales of 3 bits and more. With 2 bits weights are ternary and with 1 bit binary, whatever the scale.
enum class QuantizerScale : uint8_t {
  symmetric,  // codes around 0: the scale is 2 max|x| / 2^bits
  asymmetric  // codes from a zero point on: the scale is (max - min) / 2^bits
};
constexpr std::string_view name_of(QuantizerScale scale) {
  return scale == QuantizerScale::symmetric ? "symmetric" : "asymmetric";
}

struct Quantizer {
  QuantizerScale scale = QuantizerScale::symmetric;
  int bits = 8;

  bool is_ternary() const { return bits == 2; }
  bool is_binary() const { return bits == 1; }
};

struct ValueRange {
  float least = 0, greatest = 0;
  friend bool operator==(const ValueRange&, const ValueRange&) = default;
};
ValueRange range_of(std::span<const float> values);

/// The values that a group of 3 bits and more is rounded to.
struct QuantizedGrid {
  float scale = 0;  // 0: values stay as they are
  float zero = 0;
  float first = 0, last = 0;  // the codes

  QuantizedGrid(const Quantizer& quantizer, const ValueRange& range);
  /// dither: added to the code before it is rounded, from -0.5 to 0.5 for stochastic rounding.
  float rounded(float value, float dither = 0) const;
};

/// The two magnitudes of a ternary or binary group.
struct FewLevels {
  float threshold = 0;  // ternary: what is not above it becomes 0
  float level = 0;
  FewLevels(const Quantizer& quantizer, std::span<const float> values);
  float rounded(float value) const;
};

/// y = the quantized values of x, in `groups` groups of neighbours, which divide them. dither: empty, or a number for
/// each value. Error unless they divide.
void quantize_groups(const Quantizer& quantizer, int64_t groups, std::span<const float> x, std::span<float> y,
                     std::span<const float> dither = {});

/// The range of activations after a batch of training, for quantization by a static range: it moves by a twentieth of
/// the way, and one that begins at [0, 0] takes the first batch's.
ValueRange moved_range(const ValueRange& range, const ValueRange& batch);

}  // namespace nought
