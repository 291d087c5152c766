// The formats of codes that kernels read: their kinds, and how a weight is kept in one.
#pragma once

#include <cstdint>
#include <string_view>

namespace nought {

enum class CodeKind : uint8_t {
  q8_0,  // GGUF's Q8_0: blocks of 32 codes along rows, each i8, with an f16 scale
  nf4,   // bitsandbytes' NF4: blocks of 64 codes of the flattened weight, 4 bits each, with an f32 scale
  fp4    // the same with other values (four_bits.h)
};
constexpr bool is_four_bits(CodeKind kind) { return kind != CodeKind::q8_0; }
constexpr std::string_view name_of(CodeKind kind) {
  return kind == CodeKind::q8_0 ? "q8_0" : kind == CodeKind::nf4 ? "nf4" : "fp4";
}

/// How a parameter is kept as codes.
struct WeightCodes {
  CodeKind kind = CodeKind::q8_0;
  bool double_quantized = false;  // the scales of 4-bit codes are those that 8-bit codes stand for (four_bits.h)
  friend bool operator==(const WeightCodes&, const WeightCodes&) = default;
};

}  // namespace nought
