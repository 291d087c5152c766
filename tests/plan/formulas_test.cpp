#include "nought/plan/formulas.h"

#include <gtest/gtest.h>

namespace nought {
namespace {

constexpr double kGB = 1e9;

TEST(Formulas, zero_paper_table_of_7_5b_on_64_ranks) {
  const double expected[] = {120, 31.4, 16.6, 1.9};
  for (int stage = 0; stage <= 3; ++stage)
    EXPECT_NEAR(model_state_bytes(7.5e9, 64, Policy::stage(stage)) / kGB, expected[stage], 0.05) << stage;
}

TEST(Formulas, twelve_bytes_per_parameter_of_7b_on_8_ranks) {
  const double expected[] = {84, 35, 22.75, 10.5};
  for (int stage = 0; stage <= 3; ++stage)
    EXPECT_DOUBLE_EQ(model_state_bytes(7e9, 8, Policy::stage(stage), {.optimizer = 8}) / kGB, expected[stage]) << stage;
}

}  // namespace
}  // namespace nought
