// Qat: training for a model that will be kept in few bits, by the short names of torchao's recipes.
//
// Design goals: passes compute with the values of the codes that `nought quantize` writes of the same weights to the
// nearest, so that what was trained is what is exported. Non-goals: schedules of bits and choices of layers, which
// compress/weight_quantization.h has.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "nought/compress/input_rounding.h"

namespace nought {

/// The numbers of inputs and of weights; with one number, of weights alone, but for fp8.
enum class QatMode : uint8_t {
  int4,       // weights: 4 bits in groups of a row
  int8,       // weights: 8 bits, a scale a row
  int8_int4,  // int4, and inputs of 8 bits, a token each
  fp8,        // E4M3: weights in squares of 128, and inputs, a token each
  fp8_int4,   // int4, and inputs in E4M3
  mxfp4       // weights: E2M1 in groups of 32, with powers of two
};
inline constexpr std::array<std::pair<QatMode, std::string_view>, 6> kQatModes{{{QatMode::int4, "int4"},
                                                                                {QatMode::int8, "int8"},
                                                                                {QatMode::int8_int4, "int8-int4"},
                                                                                {QatMode::fp8, "fp8"},
                                                                                {QatMode::fp8_int4, "fp8-int4"},
                                                                                {QatMode::mxfp4, "mxfp4"}}};
constexpr std::string_view name_of(QatMode mode) {
  for (const auto& [each, name] : kQatModes)
    if (each == mode) return name;
  return "?";
}

struct Qat {
  QatMode mode = QatMode::int4;
  int64_t group_size = 32;  // columns of a row that share a scale; of int4
  int64_t start_step = 0;   // updates before the first step that rounds

  bool groups_weights() const {
    return mode == QatMode::int4 || mode == QatMode::int8_int4 || mode == QatMode::fp8_int4;
  }
  /// How inputs are rounded; not given: they stay.
  std::optional<InputRounding> inputs() const;
  /// "weights in 4 bits, groups of 32, from step 1 on".
  std::string describe() const;
  /// The options of `nought quantize` that write these codes.
  std::string quantize_options() const;
};

}  // namespace nought
