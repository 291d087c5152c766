#include "nought/plan/chart.h"

#include "support/plan_report.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::chart_test {
namespace {

using ::testing::HasSubstr;

TEST(Chart, has_a_bar_for_every_stage_and_the_budget) {
  const std::string svg = to_svg({draw_memory(test::small_report())});
  EXPECT_THAT(svg, ::testing::StartsWith("<svg "));
  for (const char* part : {">stage 0<", ">stage 3<", ">optimizer<", ">budget 4.00 GiB<", "</svg>"})
    EXPECT_THAT(svg, HasSubstr(part));
}

TEST(Svg, drawings_lie_one_below_the_other) {
  const std::string svg =
      to_svg({{100, 40, svg_rectangle(1, 2, 3, 4, "#123456")}, {200, 60, svg_text(0, 0, "end", 9, "x")}});
  EXPECT_THAT(svg, HasSubstr(R"(viewBox="0 0 200 100")"));
  EXPECT_THAT(svg, HasSubstr("<g transform=\"translate(0 40)\">\n<text"));
  EXPECT_THAT(svg, ::testing::EndsWith("</g>\n</svg>\n"));
}

}  // namespace
}  // namespace nought::chart_test
