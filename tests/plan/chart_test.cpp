#include "nought/plan/chart.h"

#include "support/plan_report.h"
#include "support/size.h"
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

/// Predictions of a pipeline's ranks; the last one has twice the peak of the others.
std::vector<Prediction> places_of(const Pipeline& pipeline) {
  std::vector<Prediction> places(static_cast<size_t>(pipeline.ranks));
  for (size_t i = 0; i < places.size(); ++i) {
    places[i].layout.pipeline = pipeline;
    places[i].layout.zero_stage = 1;
    places[i].place = static_cast<int>(i);
    places[i].memory.peak_total = places[i].memory.at_peak[0] = (i + 1 == places.size() ? 2 : 1) * int64_t{1} << 20;
  }
  return places;
}

NOUGHT_SIZE(medium);
TEST(Chart, has_a_bar_for_every_rank_of_a_pipeline_with_the_stages_that_it_holds) {
  const auto draw = [](const Pipeline& pipeline) {
    return to_svg({draw_memory(test::small_report(), places_of(pipeline))});
  };
  for (const char* part :
       {">rank 0<", ">rank 3<", ">stage 0<", ">stage 3<", ">1.00 MiB<", ">2.00 MiB<", "ZeRO stage 1"})
    EXPECT_THAT(draw({.ranks = 4}), HasSubstr(part));
  EXPECT_THAT(draw({.schedule = PipelineSchedule::interleaved, .ranks = 4, .chunks = 2}), HasSubstr(">stages 1, 5<"));
  EXPECT_THAT(draw({.schedule = PipelineSchedule::zbv, .ranks = 4, .chunks = 2}), HasSubstr(">stages 1, 6<"));
  const std::string many = draw({.ranks = 32});
  EXPECT_THAT(many, HasSubstr(">31<"));
  EXPECT_THAT(many, ::testing::Not(HasSubstr("rank 31"))) << "there is no room for words";
  EXPECT_THAT(many, ::testing::Not(HasSubstr(">1.00 MiB<"))) << "nor for every peak";
  EXPECT_THAT(many, HasSubstr(">2.00 MiB<"));
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
