#include "nought/text/unicode.h"

#include <algorithm>

namespace nought {

char32_t first_code_point(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<uint8_t>(text[i])); };
  switch (utf8_length(text[0])) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
    case 3:
      return (byte(0) & 0xF) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    default:
      return (byte(0) & 0x7) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  }
}

void append_utf8(std::string& text, char32_t c) {
  const auto push = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (c < 0x80) {
    push(c);
  } else if (c < 0x800) {
    push(0xC0 | c >> 6), push(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    push(0xE0 | c >> 12), push(0x80 | (c >> 6 & 0x3F)), push(0x80 | (c & 0x3F));
  } else {
    push(0xF0 | c >> 18), push(0x80 | (c >> 12 & 0x3F)), push(0x80 | (c >> 6 & 0x3F)), push(0x80 | (c & 0x3F));
  }
}

size_t incomplete_utf8_tail(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const char c = text[text.size() - back];
    if (is_utf8_continuation(c)) continue;
    const auto lead = static_cast<uint8_t>(c);
    return lead >= 0xC2 && lead <= 0xF4 && utf8_length(c) > back ? back : 0;
  }
  return 0;
}

size_t leading_white_space(std::string_view text) {
  size_t i = 0;
  while (i < text.size() && is_white_space(first_code_point(text.substr(i)))) i += utf8_length(text[i]);
  return i;
}

size_t trailing_white_space(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t start = end - 1;
    while (start > 0 && is_utf8_continuation(text[start])) --start;
    if (!is_white_space(first_code_point(text.substr(start)))) break;
    end = start;
  }
  return text.size() - end;
}

std::string_view trim(std::string_view text) {
  text.remove_prefix(leading_white_space(text));
  text.remove_suffix(trailing_white_space(text));
  return text;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty()) return;
  size_t at = text.find(from);
  if (at == std::string::npos) return;
  std::string out;
  size_t done = 0;
  for (; at != std::string::npos; at = text.find(from, done)) {
    out.append(text, done, at - done).append(to);
    done = at + from.size();
  }
  text = out.append(text, done);
}

}  // namespace nought
