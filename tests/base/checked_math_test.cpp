#include "nought/base/checked_math.h"

#include <vector>

#include <gtest/gtest.h>

namespace nought::checked_math_test {
namespace {

using Factors = std::vector<int64_t>;

TEST(CheckedProduct, is_the_product_of_what_fits) {
  EXPECT_EQ(checked_product(4, Factors{}), 4);
  EXPECT_EQ(checked_product(4, Factors{3, 5}), 60);
  EXPECT_EQ(checked_product(1, Factors{7, 0, 9}), 0);
  EXPECT_EQ(checked_product(1, Factors{3, 5}, 15), 15);
}

TEST(CheckedProduct, is_none_of_what_does_not) {
  constexpr int64_t kLarge = int64_t{1} << 62;
  EXPECT_EQ(checked_product(4, Factors{kLarge}), std::nullopt);
  EXPECT_EQ(checked_product(1, Factors{kLarge, 2, 0}), std::nullopt) << "on the way";
  EXPECT_EQ(checked_product(1, Factors{3, 5}, 14), std::nullopt);
  EXPECT_EQ(checked_product(1, Factors{16, 0}, 14), std::nullopt);
  EXPECT_EQ(checked_product(1, Factors{3, -1}), std::nullopt);
}

}  // namespace
}  // namespace nought::checked_math_test
