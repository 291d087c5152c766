// Timelines of pipelines: makespans and bubbles are those of the closed forms.
#include "nought/engine/pipeline_timeline.h"

#include <algorithm>
#include <array>

#include "support/pipelines.h"
#include "support/size.h"
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::pipeline_timeline_test {
namespace {

NOUGHT_FILE_SIZE(small);

using S = PipelineSchedule;

PipelineTimeline timeline(const Pipeline& pipeline, int64_t micro_batches, PassTimes times = {}, double transfer = 0) {
  return pipeline_timeline(pipeline, micro_batches, std::array{times}, transfer);
}

/// The time beyond the work of a rank, where each pass takes 1.
int64_t bubble(const test::PipelineCase& each) {
  const int64_t p = each.pipeline.ranks, m = each.micro_batches, v = each.pipeline.chunks;
  switch (each.schedule()) {
    case S::gpipe:
    case S::one_f_one_b:
      return 3 * (p - 1);
    case S::interleaved:  // in passes of a v-th of a rank's layers; with few micro-batches each waits for all stages
      return m >= p ? 3 * (p - 1) : 3 * (v * p + m - 1 - v * m);
    case S::zbh1:
      return p - 1 + std::max<int64_t>(0, p - m);
    case S::zbv:
      return p - 1 + std::max<int64_t>(0, 3 * p - 1 - 2 * m);
  }
  return -1;
}

NOUGHT_SIZE(medium);
TEST(PipelineTimeline, with_equal_passes_the_bubble_is_that_of_the_closed_form) {
  test::for_each_pipeline([](const test::PipelineCase& each) {
    const PipelineTimeline made = timeline(each.pipeline, each.micro_batches);
    const int64_t work = 3 * each.micro_batches * each.pipeline.chunks;
    ASSERT_EQ(made.end(), static_cast<double>(work + bubble(each))) << each.str();
    for (size_t rank = 0; rank < made.ranks.size(); ++rank)
      ASSERT_EQ(made.busy(rank), static_cast<double>(work)) << each.str();
  });
}

/// The time from a rank's first pass to the end of its last in which it runs none.
double idle_within(const PipelineTimeline& made, size_t rank) {
  double first = made.end(), last = 0;
  for (const TimedInstruction& each : made.ranks.at(rank))
    if (is_pass(each.instruction.action)) first = std::min(first, each.begin), last = std::max(last, each.end);
  return last - first - made.busy(rank);
}

TEST(PipelineTimeline, zbv_leaves_no_rank_idle_once_it_has_begun) {
  for (const int64_t ranks : {2, 4, 8}) {
    const PipelineTimeline v = timeline({S::zbv, ranks, 2}, 2 * ranks);
    for (size_t rank = 0; rank < v.ranks.size(); ++rank) EXPECT_EQ(idle_within(v, rank), 0) << ranks << " " << rank;
    EXPECT_GT(idle_within(timeline({S::one_f_one_b, ranks, 1}, 2 * ranks), 0), 0);
  }
}

TEST(PipelineTimeline, other_times_have_the_bubble_of_the_closed_form) {
  const PassTimes times{.forward = 2, .backward = 3, .weight_gradients = 1.5};
  for (const int64_t p : {1, 2, 3, 4, 8})
    for (const int64_t m : {p, 2 * p, 4 * p}) {
      const auto steps = static_cast<double>(p - 1), count = static_cast<double>(m);
      EXPECT_DOUBLE_EQ(timeline({S::gpipe, p, 1}, m, times).end(), (count + steps) * 6.5);
      EXPECT_DOUBLE_EQ(timeline({S::one_f_one_b, p, 1}, m, times).end(), (count + steps) * 6.5);
      EXPECT_DOUBLE_EQ(timeline({S::interleaved, p, 3}, m, times).end(), (3 * count + steps) * 6.5);
      EXPECT_DOUBLE_EQ(timeline({S::zbh1, p, 1}, m, times).end(), count * 6.5 + steps * (2 + 3 - 1.5));
    }
}

TEST(PipelineTimeline, a_transfer_delays_what_waits_for_it_and_nothing_else) {
  const PipelineTimeline made = timeline({S::gpipe, 3, 1}, 4, {}, 0.25);
  EXPECT_DOUBLE_EQ(made.end(), 3 * (4 + 2) + 2 * 2 * 0.25) << "filled and drained through two boundaries";
  const TimedInstruction &first = made.ranks[0][0], &sent = made.ranks[0][1];
  EXPECT_EQ(sent.instruction.action, Action::send_activation);
  EXPECT_EQ(sent.begin, first.end);
  EXPECT_EQ(sent.end, 1.25);
  EXPECT_EQ(made.ranks[0][2].begin, first.end) << "the next pass does not wait for what is sent";
  EXPECT_EQ(made.ranks[1][0].begin, 1.25);
  // Slower than a pass: messages queue on the wire.
  EXPECT_DOUBLE_EQ(timeline({S::gpipe, 2, 1}, 4, {}, 3).end(), (1 + 4 * 3 + 1) + (2 + 4 * 3 + 2));
}

TEST(PipelineTimeline, a_slow_stage_sets_the_pace) {
  const std::array<PassTimes, 3> times{PassTimes{1, 1, 1}, PassTimes{2, 2, 2}, PassTimes{1, 1, 1}};
  const PipelineTimeline made = pipeline_timeline({S::gpipe, 3, 1}, 4, times);
  EXPECT_DOUBLE_EQ(made.end(), (1 + 4 * 2 + 1) * 3);
  EXPECT_EQ(made.busy(1), 2 * made.busy(0));
  EXPECT_THROW(pipeline_timeline({S::gpipe, 2, 1}, 4, times), Error);
}

NOUGHT_SIZE(medium);
TEST(PipelineTimeline, no_two_passes_of_a_rank_overlap) {
  test::for_each_pipeline([](const test::PipelineCase& each) {
    if (each.micro_batches > 8) return;
    for (const auto& rank : timeline(each.pipeline, each.micro_batches, {1, 2, 0.5}, 0.75).ranks) {
      double end = 0;
      for (const TimedInstruction& at : rank)
        if (is_pass(at.instruction.action)) {
          ASSERT_GE(at.begin, end) << each.str();
          end = at.end;
        }
    }
  });
}

}  // namespace
}  // namespace nought::pipeline_timeline_test
