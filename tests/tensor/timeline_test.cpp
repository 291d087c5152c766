#include "nought/tensor/timeline.h"

#include <thread>

#include <gtest/gtest.h>

namespace nought::timeline_test {
namespace {

TEST(Timeline, holds_the_events_that_begin_while_it_records) {
  Timeline timeline;
  { const TimedScope before(&timeline, TraceEventKind::phase, "before"); }
  timeline.start();
  {
    const TimedScope outer(&timeline, TraceEventKind::phase, "outer");
    const TimedScope inner(&timeline, TraceEventKind::collective, "inner", 64);
  }
  timeline.stop();
  { const TimedScope after(&timeline, TraceEventKind::phase, "after"); }
  const std::vector<TraceEvent> events = timeline.take();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].name, "inner") << "in the order of their ends";
  EXPECT_EQ(events[0].kind, TraceEventKind::collective);
  EXPECT_EQ(events[0].bytes, 64);
  EXPECT_EQ(events[1].name, "outer");
  EXPECT_LE(events[1].begin, events[0].begin);
  EXPECT_LE(events[0].end, events[1].end);
  EXPECT_GE(events[1].seconds(), 0);
  EXPECT_TRUE(timeline.take().empty()) << "each is taken once";
}

TEST(Timeline, what_is_under_way_when_the_recording_stops_is_kept) {
  Timeline timeline;
  timeline.start();
  {
    const TimedScope scope(&timeline, TraceEventKind::unit, "unit");
    timeline.stop();
    EXPECT_TRUE(timeline.take().empty());
  }
  EXPECT_EQ(timeline.take().size(), 1u);
}

TEST(Timeline, a_scope_without_a_timeline_costs_nothing_and_threads_share_one) {
  { const TimedScope scope(nullptr, TraceEventKind::wait, "wait"); }
  Timeline timeline;
  timeline.start();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 50; ++k) const TimedScope scope(&timeline, TraceEventKind::operation, "work");
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(timeline.take().size(), 200u);
}

}  // namespace
}  // namespace nought::timeline_test
