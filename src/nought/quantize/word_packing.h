// Codes in words of 32 bits, as the formats of folders have them.
#pragma once

#include <cstdint>
#include <vector>

#include "nought/base/math.h"

namespace nought {

/// A stream of codes, lowest bits first; the last word is filled with zeros.
template <class CodeAt>
std::vector<uint32_t> packed_stream(int64_t count, int bits, const CodeAt& code_at) {
  std::vector<uint32_t> words(static_cast<size_t>(ceil_div(count * bits, 32)));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t bit = i * bits;
    const uint64_t code = static_cast<uint64_t>(code_at(i)) << (bit % 32);
    words[static_cast<size_t>(bit / 32)] |= static_cast<uint32_t>(code);
    if (const auto carry = static_cast<uint32_t>(code >> 32); carry != 0)
      words[static_cast<size_t>(bit / 32 + 1)] |= carry;
  }
  return words;
}

}  // namespace nought
