// Fp8Options: how a run scales what it multiplies in 8 bits. Plain values, no tensors.
#pragma once

#include <cstdint>
#include <string_view>

namespace nought {

/// Where a tensor's scale comes from: its largest values in the steps before, over all ranks; or its own.
enum class Fp8Scaling : uint8_t { none, delayed, current };
constexpr std::string_view name_of(Fp8Scaling scaling) {
  return scaling == Fp8Scaling::none ? "none" : scaling == Fp8Scaling::delayed ? "delayed" : "current";
}
struct Fp8Options {
  Fp8Scaling scaling = Fp8Scaling::none;
  int64_t history = 16;  // delayed: steps that count
  int margin = 0;        // scales are 2^margin smaller than they may be
};

}  // namespace nought
