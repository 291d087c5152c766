#include "nought/tensor/random.h"

#include <gtest/gtest.h>

namespace nought::random_test {
namespace {

TEST(Random, philox_matches_the_published_vectors) {  // Random123, kat_vectors, philox4x32-10
  EXPECT_EQ(philox(0, 0), (Philox{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ull, ~0ull, ~0ull), (Philox{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Random, normal_values_have_mean_zero_and_variance_one) {
  double sum = 0, squares = 0;
  constexpr int kCount = 200000;
  for (uint64_t i = 0; i < kCount; ++i) {
    const double x = normal_at(42, i);
    sum += x, squares += x * x;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.01);
  EXPECT_NEAR(squares / kCount, 1, 0.01);
}

TEST(Random, a_hash_is_the_same_for_ever) {
  EXPECT_EQ(stable_hash(""), 0xCBF29CE484222325ull);   // FNV-1a's offset
  EXPECT_EQ(stable_hash("a"), 0xAF63DC4C8601EC8Cull);  // and its published values
  EXPECT_EQ(stable_hash("foobar"), 0x85944171F73967E8ull);
  EXPECT_NE(stable_hash("a", 1), stable_hash("a", 2));
}

TEST(Random, uniform_values_are_in_the_unit_interval_without_zero) {
  EXPECT_GT(to_unit(0), 0);
  EXPECT_EQ(to_unit(~0u), 1);
  double sum = 0;
  constexpr int kCount = 100000;
  for (uint64_t i = 0; i < kCount; ++i) sum += uniform_at(42, i);
  EXPECT_NEAR(sum / kCount, 0.5, 0.01);
}

}  // namespace
}  // namespace nought::random_test
