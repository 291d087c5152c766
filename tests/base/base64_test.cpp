#include "nought/base/base64.h"

#include <gtest/gtest.h>

namespace nought::base64_test {
namespace {

TEST(Base64, letters_are_bytes_with_padding_and_without) {
  EXPECT_EQ(decode_base64(""), "");
  EXPECT_EQ(decode_base64("TQ=="), "M");
  EXPECT_EQ(decode_base64("TWE"), "Ma");
  EXPECT_EQ(decode_base64("TWFu"), "Man");
  EXPECT_EQ(decode_base64("//79+A=="), "\xFF\xFE\xFD\xF8");
  EXPECT_EQ(decode_base64("TW!u"), std::nullopt);
}

TEST(Base64, bytes_are_letters_with_padding) {
  EXPECT_EQ(encode_base64(""), "");
  EXPECT_EQ(encode_base64("M"), "TQ==");
  EXPECT_EQ(encode_base64("Ma"), "TWE=");
  EXPECT_EQ(encode_base64("Man"), "TWFu");
  EXPECT_EQ(encode_base64("\xFF\xFE\xFD\xF8"), "//79+A==");
}

}  // namespace
}  // namespace nought::base64_test
