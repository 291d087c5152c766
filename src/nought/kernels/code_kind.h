// The formats of codes that kernels read: their kinds, and how a weight is kept in one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace nought {

struct WeightFormat;  // io/weight_formats.h

enum class CodeKind : uint8_t {
  q8_0,   // GGUF's Q8_0: blocks of 32 codes along rows, each i8, with an f16 scale
  nf4,    // bitsandbytes' NF4: blocks of 64 codes of the flattened weight, 4 bits each, with an f32 scale
  fp4,    // the same with other values (four_bits.h)
  blocks  // blocks along rows as a file has them, codes and scales together: a row of the table of formats says which
};
constexpr bool is_four_bits(CodeKind kind) { return kind == CodeKind::nf4 || kind == CodeKind::fp4; }
constexpr std::string_view name_of(CodeKind kind) {
  constexpr std::string_view kNames[] = {"q8_0", "nf4", "fp4", "blocks"};
  return kNames[static_cast<size_t>(kind)];
}

/// How a parameter is kept as codes.
struct WeightCodes {
  CodeKind kind = CodeKind::q8_0;
  bool double_quantized = false;         // the scales of 4-bit codes are those that 8-bit codes stand for (four_bits.h)
  const WeightFormat* format = nullptr;  // of blocks
  friend bool operator==(const WeightCodes&, const WeightCodes&) = default;
};

}  // namespace nought
