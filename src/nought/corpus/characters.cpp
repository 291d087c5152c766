#include "nought/corpus/characters.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>

#include <utf8proc.h>

#include "nought/base/error.h"
#include "nought/text/unicode.h"

namespace nought {

namespace {

utf8proc_category_t category_of(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool is_ascii_letter(char32_t c) { return (c | 0x20U) >= 'a' && (c | 0x20U) <= 'z'; }

/// Sentence_Terminal of Unicode's PropList, as ranges, without ASCII.
constexpr std::pair<char32_t, char32_t> kSentenceEnds[] = {
    {0x589, 0x589},     {0x61D, 0x61F},     {0x6D4, 0x6D4},     {0x700, 0x702},     {0x7F9, 0x7F9},
    {0x837, 0x837},     {0x839, 0x839},     {0x83D, 0x83E},     {0x964, 0x965},     {0x104A, 0x104B},
    {0x1362, 0x1362},   {0x1367, 0x1368},   {0x166E, 0x166E},   {0x1735, 0x1736},   {0x17D4, 0x17D6},
    {0x17D9, 0x17DA},   {0x1803, 0x1803},   {0x1809, 0x1809},   {0x1944, 0x1945},   {0x1AA8, 0x1AAB},
    {0x1B5A, 0x1B5B},   {0x1B5E, 0x1B5F},   {0x1B7D, 0x1B7E},   {0x1C3B, 0x1C3C},   {0x1C7E, 0x1C7F},
    {0x203C, 0x203D},   {0x2047, 0x2049},   {0x2E2E, 0x2E2E},   {0x2E3C, 0x2E3C},   {0x2E53, 0x2E54},
    {0x3002, 0x3002},   {0xA4FF, 0xA4FF},   {0xA60E, 0xA60F},   {0xA6F3, 0xA6F3},   {0xA6F7, 0xA6F7},
    {0xA876, 0xA877},   {0xA8CE, 0xA8CF},   {0xA92F, 0xA92F},   {0xA9C8, 0xA9C9},   {0xAA5D, 0xAA5F},
    {0xAAF0, 0xAAF1},   {0xABEB, 0xABEB},   {0xFE52, 0xFE52},   {0xFE56, 0xFE57},   {0xFF01, 0xFF01},
    {0xFF0E, 0xFF0E},   {0xFF1F, 0xFF1F},   {0xFF61, 0xFF61},   {0x10A56, 0x10A57}, {0x10F55, 0x10F59},
    {0x10F86, 0x10F89}, {0x11047, 0x11048}, {0x110BE, 0x110C1}, {0x11141, 0x11143}, {0x111C5, 0x111C6},
    {0x111CD, 0x111CD}, {0x111DE, 0x111DF}, {0x11238, 0x11239}, {0x1123B, 0x1123C}, {0x112A9, 0x112A9},
    {0x1144B, 0x1144C}, {0x115C2, 0x115C3}, {0x115C9, 0x115D7}, {0x11641, 0x11642}, {0x1173C, 0x1173E},
    {0x11944, 0x11944}, {0x11946, 0x11946}, {0x11A42, 0x11A43}, {0x11A9B, 0x11A9C}, {0x11C41, 0x11C42},
    {0x11EF7, 0x11EF8}, {0x11F43, 0x11F44}, {0x16A6E, 0x16A6F}, {0x16AF5, 0x16AF5}, {0x16B37, 0x16B38},
    {0x16B44, 0x16B44}, {0x16E98, 0x16E98}, {0x1BC9F, 0x1BC9F}, {0x1DA88, 0x1DA88}};

}  // namespace

Character first_character(std::string_view text) {
  if (static_cast<uint8_t>(text.front()) < 0x80) return {static_cast<uint8_t>(text.front()), 1};
  return {first_code_point(text), std::min(utf8_length(text.front()), text.size())};
}

Character last_character(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0U) == 0x80) --at;
  return first_character(text.substr(at));
}

size_t count_characters(std::string_view text) {
  size_t count = 0;
  for (const char byte : text) count += (static_cast<uint8_t>(byte) & 0xC0U) != 0x80;
  return count;
}

size_t count_of(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

bool is_letter(char32_t c) {
  if (c < 0x80) return is_ascii_letter(c);
  const utf8proc_category_t category = category_of(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}
bool is_lower_letter(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z';
  return category_of(c) == UTF8PROC_CATEGORY_LL;
}
bool is_upper_letter(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z';
  return category_of(c) == UTF8PROC_CATEGORY_LU;
}

bool is_punctuation(char32_t c) {
  const utf8proc_category_t category = category_of(c);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool is_picture(char32_t c) { return c >= 0x80 && category_of(c) == UTF8PROC_CATEGORY_SO; }

bool is_symbol(char32_t c) {
  if (c < 0x80) return !is_ascii_letter(c) && !(c >= '0' && c <= '9') && c != ' ' && c != '\n' && c != '\t';
  return c < 0xA0 || c == 0xB4 || c == 0x2236 || is_punctuation(c);
}

bool ends_sentence(char32_t c) {
  if (c < 0x80) return c == '.' || c == '?' || c == '!';
  for (const auto& [begin, end] : kSentenceEnds)
    if (c <= end) return c >= begin;
  return false;
}

bool is_space(char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

std::string_view strip(std::string_view text) {
  while (!text.empty()) {
    const Character c = first_character(text);
    if (!is_space(c.code)) break;
    text.remove_prefix(c.length);
  }
  while (!text.empty()) {
    const Character c = last_character(text);
    if (!is_space(c.code)) break;
    text.remove_suffix(c.length);
  }
  return text;
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  size_t begin = 0, at = 0;
  while (at < text.size()) {
    const auto byte = static_cast<uint8_t>(text[at]);
    const bool ascii = (byte >= 0xA && byte <= 0xD) || (byte >= 0x1C && byte <= 0x1E);
    // U+0085 is C2 85, U+2028 and U+2029 are E2 80 A8 and A9.
    const bool wide = (byte == 0xC2 && text.substr(at, 2) == "\xC2\x85") ||
                      (byte == 0xE2 && (text.substr(at, 3) == "\xE2\x80\xA8" || text.substr(at, 3) == "\xE2\x80\xA9"));
    if (!ascii && !wide) {
      ++at;
      continue;
    }
    lines.push_back(text.substr(begin, at - begin));
    at += ascii ? 1 + static_cast<size_t>(text.substr(at, 2) == "\r\n") : utf8_length(text[at]);
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

void split_at_spaces(std::string_view text, std::vector<std::string_view>& words) {
  size_t begin = 0, at = 0;
  while (at < text.size()) {
    const auto byte = static_cast<uint8_t>(text[at]);
    if (byte > 0x20 && byte < 0x80) {
      ++at;
      continue;
    }
    const Character c = first_character(text.substr(at));
    if (is_space(c.code)) {
      if (at > begin) words.push_back(text.substr(begin, at - begin));
      begin = at + c.length;
    }
    at += c.length;
  }
  if (begin < text.size()) words.push_back(text.substr(begin));
}

std::string lower_text(std::string_view text) {
  std::string lower;
  lower.reserve(text.size());
  while (!text.empty()) {
    const Character c = first_character(text);
    if (c.code < 0x80)
      lower += static_cast<char>(c.code >= 'A' && c.code <= 'Z' ? c.code | 0x20U : c.code);
    else
      append_utf8(lower, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.code))));
    text.remove_prefix(c.length);
  }
  return lower;
}

std::string normal_form_c(std::string text) {
  if (std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; })) return text;
  utf8proc_uint8_t* out = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &out, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(out, &std::free);
  require<ConfigError>(size >= 0, "cannot normalise the text: {}", utf8proc_errmsg(size));
  return {reinterpret_cast<const char*>(out), static_cast<size_t>(size)};
}

}  // namespace nought
