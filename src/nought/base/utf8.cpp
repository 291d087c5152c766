#include "nought/base/utf8.h"

#include <cstring>

namespace nought {

size_t valid_utf8_character(std::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);  // Table 3-7 of the Unicode standard
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const size_t length = utf8_length(text[0]);
  if (text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if (!is_utf8_continuation(text[i])) return 0;
  }
  const auto second = static_cast<uint8_t>(text[1]);
  const bool overlong = (lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90);
  const bool surrogate = lead == 0xED && second > 0x9F, beyond = lead == 0xF4 && second > 0x8F;
  return overlong || surrogate || beyond ? 0 : length;
}

size_t valid_utf8_prefix(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    uint64_t eight;
    while (i + 8 <= text.size() && (std::memcpy(&eight, text.data() + i, 8), (eight & 0x8080808080808080ull) == 0))
      i += 8;
    if (i == text.size()) break;
    const size_t length = valid_utf8_character(text.substr(i));
    if (length == 0) break;
    i += length;
  }
  return i;
}

}  // namespace nought
