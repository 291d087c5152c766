#include "nought/plan/pipeline_chart.h"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::pipeline_chart_test {
namespace {

using ::testing::HasSubstr;

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

/// Every pass takes 10 ms.
TimelinePanel panel(const Pipeline& pipeline, int64_t micro_batches, double transfer = 0) {
  constexpr PassTimes kTimes{.forward = 0.01, .backward = 0.01, .weight_gradients = 0.01};
  return {"A caption", pipeline_timeline(pipeline, micro_batches, std::array{kTimes}, transfer)};
}

std::string draw(const std::vector<TimelinePanel>& panels) { return to_svg({draw_timelines(panels, "A title")}); }

TEST(PipelineChart, has_a_row_for_each_rank_and_a_numbered_box_for_each_pass) {
  const std::string svg = draw({panel({PipelineSchedule::one_f_one_b, 4, 1}, 8)});
  EXPECT_THAT(svg, ::testing::StartsWith("<svg "));
  for (const char* part : {">A title<", ">A caption<", ">rank 0<", ">rank 3<", ">forward<", ">backward<", "</svg>\n",
                           ">330 ms, ranks are idle for 27.3% of it<"})  // (p - 1) / (m + p - 1)
    EXPECT_THAT(svg, HasSubstr(part));
  EXPECT_EQ(count(svg, ">7<"), 4U * 2) << "forward and backward of the last micro-batch";
  // The ground, a row for each rank, the passes, the legend.
  EXPECT_EQ(count(svg, "<rect"), 1 + 4 + 4 * 8 * 2 + 3U);
  EXPECT_THAT(svg, ::testing::Not(HasSubstr("weight gradients"))) << "the backward passes form them";
}

TEST(PipelineChart, has_an_axis_of_time) {
  const std::string svg = draw({panel({PipelineSchedule::one_f_one_b, 4, 1}, 8)});
  for (const char* tick : {">0 ms<", ">50 ms<", ">300 ms<"}) EXPECT_EQ(count(svg, tick), 1U) << tick;
  EXPECT_EQ(count(svg, ">350 ms<"), 0U) << "beyond the end";
}

TEST(PipelineChart, panels_share_one_scale) {
  const Pipeline pipeline{PipelineSchedule::gpipe, 2, 1};
  TimelinePanel twice = panel(pipeline, 4);
  for (auto& rank : twice.timeline.ranks)
    for (TimedInstruction& each : rank) each.begin *= 2, each.end *= 2;
  const std::string svg = draw({panel(pipeline, 4), twice});
  EXPECT_EQ(count(svg, ">rank 1<"), 2U);
  EXPECT_EQ(count(svg, R"(width="872.0" height="26.00" fill="#eeeeee")"), 2U) << "the whole width, by the longer one";
  EXPECT_EQ(count(svg, R"(width="436.0" height="26.00" fill="#eeeeee")"), 2U);
}

TEST(PipelineChart, chunks_differ_in_colour_and_messages_have_bars) {
  const Pipeline v{PipelineSchedule::zbv, 2, 2};
  const std::string svg = draw({panel(v, 4)});
  EXPECT_EQ(count(svg, "fill=\"#0072b2\""), 2 * 4 + 1U) << "forward passes of the first chunk, and the legend";
  EXPECT_EQ(count(svg, "fill=\"#99c6e0\""), 2 * 4 + 1U);
  EXPECT_EQ(count(svg, ">message<"), 0U);
  const std::string sent = draw({panel(v, 4, 0.0025)});
  EXPECT_EQ(count(sent, "fill=\"#777777\""), 4 * 4 + 1U);
  EXPECT_EQ(count(sent, ">message<"), 1U);
}

TEST(PipelineChart, passes_without_a_time_cannot_be_drawn) {
  EXPECT_THROW(draw({{"", pipeline_timeline({}, 1, std::array{PassTimes{0, 0, 0}})}}), Error);
}

}  // namespace
}  // namespace nought::pipeline_chart_test
