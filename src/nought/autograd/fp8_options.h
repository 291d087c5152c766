// Fp8Options: how a run rounds what its linear layers multiply. Plain values, no tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "nought/compress/input_rounding.h"

namespace nought {

/// Where a tensor's scale comes from: its largest values in the steps before, over all ranks; or its own.
enum class Fp8Scaling : uint8_t { none, delayed, current };
constexpr std::string_view name_of(Fp8Scaling scaling) {
  return scaling == Fp8Scaling::none ? "none" : scaling == Fp8Scaling::delayed ? "delayed" : "current";
}
struct Fp8Options {
  Fp8Scaling scaling = Fp8Scaling::none;
  int64_t history = 16;                      // delayed: steps that count
  int margin = 0;                            // scales are 2^margin smaller than they may be
  std::optional<InputRounding> inputs = {};  // how each token's inputs are rounded, where the rest is not

  bool rounds() const { return scaling != Fp8Scaling::none || inputs.has_value(); }
};

}  // namespace nought
