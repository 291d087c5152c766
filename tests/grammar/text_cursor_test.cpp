// What regular expressions and GBNF read alike.
#include "nought/grammar/text_cursor.h"

#include <gtest/gtest.h>

namespace nought::text_cursor_test {
namespace {

struct Open : TextCursor {
  using TextCursor::at_;
  using TextCursor::TextCursor;
};

TEST(TextCursor, takes_characters_and_texts) {
  Open cursor("aé|b");
  EXPECT_EQ(cursor.take(), U'a');
  EXPECT_FALSE(cursor.skip("|"));
  EXPECT_EQ(cursor.take(), U'é');
  EXPECT_TRUE(cursor.sees("?|"));
  EXPECT_TRUE(cursor.skip("|b"));
  EXPECT_FALSE(cursor.more());
  EXPECT_EQ(cursor.peek(), '\0');
  EXPECT_FALSE(cursor.sees(std::string_view("\0", 1))) << "the end is no byte";
}

TEST(TextCursor, counts_up_to_the_most) {
  EXPECT_EQ(Open("10000}").count(), kMostCounts);
  EXPECT_EQ(Open("10001").count(), std::nullopt);
  EXPECT_EQ(Open("99999999999999999999").count(), std::nullopt);
  EXPECT_EQ(Open("}").count(), std::nullopt);
}

TEST(TextCursor, stops_in_front_of_what_is_no_hexadecimal_digit) {
  EXPECT_EQ(Open("fF09").hexadecimal(4), char32_t{0xFF09});
  EXPECT_EQ(Open("FFFFFFFF").hexadecimal(8), char32_t{0xFFFFFFFF});
  Open cursor("12g4");
  EXPECT_EQ(cursor.hexadecimal(4), std::nullopt);
  EXPECT_EQ(cursor.at_, 2U);
}

}  // namespace
}  // namespace nought::text_cursor_test
