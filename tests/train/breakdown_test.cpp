#include "nought/diagnose/breakdown.h"

#include "support/size.h"
#include <gtest/gtest.h>

namespace nought::breakdown_test {
namespace {

NOUGHT_FILE_SIZE(small);

TraceEvent event_of(TraceEventKind kind, const std::string& name, int begin, int end, int64_t bytes = 0) {
  const TraceEvent::Clock::time_point start{};
  return {kind, name, start + std::chrono::milliseconds(begin), start + std::chrono::milliseconds(end), bytes};
}

TEST(Breakdown, communication_is_exposed_while_the_computing_thread_waits_for_it) {
  const std::vector<TraceEvent> events{event_of(TraceEventKind::phase, "forward", 0, 100),
                                       event_of(TraceEventKind::phase, "backward", 100, 300),
                                       event_of(TraceEventKind::phase, "forward", 300, 350),
                                       event_of(TraceEventKind::phase, "optimizer", 350, 400),
                                       event_of(TraceEventKind::operation, "MatMul", 0, 50),
                                       event_of(TraceEventKind::collective, "all_gather", 10, 60),
                                       event_of(TraceEventKind::collective, "all_gather", 80, 90),
                                       event_of(TraceEventKind::wait, "wait", 50, 70),
                                       event_of(TraceEventKind::wait, "wait", 85, 95)};
  const StepBreakdown breakdown = breakdown_of(events);
  EXPECT_NEAR(breakdown.forward, 0.150, 1e-12);
  EXPECT_NEAR(breakdown.backward, 0.200, 1e-12);
  EXPECT_NEAR(breakdown.optimizer, 0.050, 1e-12);
  EXPECT_NEAR(breakdown.communication, 0.060, 1e-12);
  EXPECT_NEAR(breakdown.exposed, 0.015, 1e-12);
  EXPECT_NEAR(breakdown.hidden(), 0.75, 1e-12);
  EXPECT_EQ(StepBreakdown{}.hidden(), 1);
}

TEST(Breakdown, a_phase_has_the_time_in_which_it_waited_apart) {
  const std::vector<TraceEvent> events{
      event_of(TraceEventKind::phase, "data", 0, 7),         event_of(TraceEventKind::phase, "forward", 10, 100),
      event_of(TraceEventKind::phase, "backward", 100, 300), event_of(TraceEventKind::wait, "wait", 20, 25),
      event_of(TraceEventKind::wait, "wait", 90, 140),       event_of(TraceEventKind::wait, "wait", 310, 320)};
  const StepBreakdown breakdown = breakdown_of(events);
  EXPECT_NEAR(breakdown.data, 0.007, 1e-12);
  EXPECT_NEAR(breakdown.forward_waits, 0.015, 1e-12);
  EXPECT_NEAR(breakdown.backward_waits, 0.040, 1e-12);
  EXPECT_NEAR(breakdown.backward, 0.200, 1e-12) << "waiting included";
}

TEST(Breakdown, collectives_are_summed_by_name_and_size) {
  std::vector<CollectiveTotal> totals;
  const std::vector<TraceEvent> events{event_of(TraceEventKind::collective, "reduce_scatter", 0, 8, 64),
                                       event_of(TraceEventKind::collective, "all_gather", 8, 10, 64),
                                       event_of(TraceEventKind::collective, "all_gather", 10, 13, 32),
                                       event_of(TraceEventKind::collective, "all_gather", 13, 17, 64),
                                       event_of(TraceEventKind::wait, "wait", 0, 4)};
  add_collectives(collectives_of(events, {}), totals);
  ASSERT_EQ(totals.size(), 3u);
  EXPECT_EQ(totals[0].bytes, 32);
  EXPECT_EQ(totals[1].name, "all_gather");
  EXPECT_EQ(totals[1].calls, 2);
  EXPECT_NEAR(totals[1].seconds, 0.006, 1e-12);
  EXPECT_EQ(totals[2].name, "reduce_scatter");
  add_collectives(collectives_of(events, {"reduce_scatter"}), totals);
  EXPECT_EQ(totals[1].calls, 2);
  EXPECT_EQ(totals[2].calls, 2);
}

}  // namespace
}  // namespace nought::breakdown_test
