#include "nought/plan/chart.h"

#include "support/plan_report.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought {
namespace {

using ::testing::HasSubstr;

TEST(Chart, has_a_bar_for_every_stage_and_the_budget) {
  const std::string svg = to_svg(test::small_report());
  EXPECT_THAT(svg, ::testing::StartsWith("<svg "));
  for (const char* part : {">stage 0<", ">stage 3<", ">optimizer<", ">budget 4.00 GiB<", "</svg>"})
    EXPECT_THAT(svg, HasSubstr(part));
}

}  // namespace
}  // namespace nought
