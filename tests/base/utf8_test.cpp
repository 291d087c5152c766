#include "nought/base/utf8.h"

#include <string>

#include <gtest/gtest.h>

namespace nought::utf8_test {
namespace {

TEST(Utf8, the_valid_prefix_ends_before_what_the_standard_forbids) {
  const std::string good = "12345678 caf\u00e9";  // beyond one word of eight bytes
  for (const char* bad : {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80",
                          "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xc3", "\xe4\xb8", "\xe4x"})
    EXPECT_EQ(valid_utf8_prefix(good + bad), good.size()) << bad;
  EXPECT_TRUE(is_valid_utf8(good));
  EXPECT_TRUE(is_valid_utf8(""));
}

}  // namespace
}  // namespace nought::utf8_test
