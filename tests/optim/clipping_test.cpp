// Gradients are scaled down to the limit of their norm, and never up.
#include "nought/optim/clipping.h"

#include <gtest/gtest.h>

namespace nought::clipping_test {
namespace {

TEST(Clipping, a_norm_above_the_limit_becomes_the_limit) {
  EXPECT_NEAR(10 * clip_factor(10, 2.5), 2.5, 1e-6);
  EXPECT_DOUBLE_EQ(clip_factor(4, 1), 1 / (4 + 1e-6));  // as torch does
}

TEST(Clipping, a_norm_within_the_limit_stays) {
  EXPECT_EQ(clip_factor(0.5, 1), 1);
  EXPECT_EQ(clip_factor(0, 1), 1);
}

TEST(Clipping, without_a_limit_nothing_is_clipped) {
  EXPECT_EQ(clip_factor(1e30, 0), 1);
  EXPECT_EQ(clip_factor(1e30, -1), 1);
}

}  // namespace
}  // namespace nought::clipping_test
