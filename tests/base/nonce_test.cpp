#include "nought/base/nonce.h"

#include <gtest/gtest.h>

namespace nought::nonce_test {
namespace {

TEST(Nonce, has_32_digits_and_is_another_each_time) {
  const std::string nonce = random_nonce();
  EXPECT_EQ(nonce.size(), 32u);
  EXPECT_EQ(nonce.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(nonce, random_nonce());
}

}  // namespace
}  // namespace nought::nonce_test
