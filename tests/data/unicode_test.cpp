#include "nought/text/unicode.h"

#include <gtest/gtest.h>

namespace nought::unicode_test {
namespace {

TEST(Unicode, every_scalar_value_is_written_and_read_back) {
  for (char32_t c = 0; c <= 0x10FFFF; c += c < 0x3000 ? 1 : 251) {
    if (0xD800 <= c && c <= 0xDFFF) continue;  // surrogates are no characters
    std::string text;
    append_utf8(text, c);
    ASSERT_TRUE(is_valid_utf8(text)) << static_cast<uint32_t>(c);
    ASSERT_EQ(first_code_point(text), c);
    ASSERT_EQ(utf8_length(text[0]), text.size());
    for (size_t cut = 1; cut < text.size(); ++cut)
      ASSERT_EQ(incomplete_utf8_tail("a" + text.substr(0, cut)), cut) << static_cast<uint32_t>(c);
    ASSERT_EQ(incomplete_utf8_tail(text), 0u);
  }
}

TEST(Unicode, white_space_goes_from_both_ends_and_from_nowhere_else) {
  EXPECT_EQ(trim(" \t\u3000a b\u00a0\n"), "a b");
  EXPECT_EQ(leading_white_space("\u2003x "), 3u);
  EXPECT_EQ(trailing_white_space("x\u2003 "), 4u);
  EXPECT_EQ(trim(" \n"), "");
  EXPECT_EQ(trim("\u200b"), "\u200b") << "a zero-width space is no white space";
}

TEST(Unicode, replaces_from_left_to_right_without_looking_at_what_it_wrote) {
  const auto replaced = [](std::string text, std::string_view from, std::string_view to) {
    replace_all(text, from, to);
    return text;
  };
  EXPECT_EQ(replaced("aaa", "aa", "a"), "aa");
  EXPECT_EQ(replaced("a b c", " ", "\u2581"), "a\u2581b\u2581c");
  EXPECT_EQ(replaced("abc", "", "x"), "abc");
  EXPECT_EQ(replaced("abc", "x", "y"), "abc");
}

}  // namespace
}  // namespace nought::unicode_test
