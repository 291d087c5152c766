#include "nought/plan/pipeline_chart.h"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought {
namespace {

using ::testing::HasSubstr;

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

std::string draw(const Pipeline& pipeline, int64_t micro_batches, double transfer = 0) {
  return to_svg(pipeline_timeline(pipeline, micro_batches, std::array{PassTimes()}, transfer), "A title");
}

TEST(PipelineChart, has_a_row_for_each_rank_and_a_numbered_box_for_each_pass) {
  const std::string svg = draw({PipelineSchedule::one_f_one_b, 4, 1}, 8);
  EXPECT_THAT(svg, ::testing::StartsWith("<svg "));
  for (const char* part : {">A title<", ">rank 0<", ">rank 3<", ">forward<", ">backward<", "</svg>\n",
                           ">ranks are idle for 27.3% of the time<"})  // (p - 1) / (m + p - 1)
    EXPECT_THAT(svg, HasSubstr(part));
  EXPECT_EQ(count(svg, ">7<"), 4U * 2) << "forward and backward of the last micro-batch";
  // The ground, a row for each rank, the passes, the legend.
  EXPECT_EQ(count(svg, "<rect"), 1 + 4 + 4 * 8 * 2 + 2U);
  EXPECT_THAT(svg, ::testing::Not(HasSubstr("weight gradients"))) << "the backward passes form them";
}

TEST(PipelineChart, chunks_differ_in_colour_and_messages_have_bars) {
  const std::string v = draw({PipelineSchedule::zbv, 2, 2}, 4);
  EXPECT_EQ(count(v, "fill=\"#0072b2\""), 2 * 4 + 1U) << "forward passes of the first chunk, and the legend";
  EXPECT_EQ(count(v, "fill=\"#99c6e0\""), 2 * 4U);
  EXPECT_EQ(count(v, "fill=\"#999999\""), 0U);
  EXPECT_EQ(count(draw({PipelineSchedule::zbv, 2, 2}, 4, 0.25), "fill=\"#999999\""), 4 * 4U);
}

TEST(PipelineChart, passes_without_a_time_cannot_be_drawn) {
  EXPECT_THROW(to_svg(pipeline_timeline({}, 1, std::array{PassTimes{0, 0, 0}}), "A title"), Error);
}

}  // namespace
}  // namespace nought
