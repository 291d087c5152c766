#include "nought/tensor/stream.h"

#include <atomic>
#include <vector>

#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought {
namespace {

TEST(Stream, worker_runs_in_order_and_events_carry_failures) {
  Stream stream(Stream::Kind::worker, "test");
  std::vector<int> order;
  Event first = stream.submit([&] { order.push_back(1); });
  Event bad = stream.submit([&] { fail<CommError>("broken"); });
  Event last = stream.submit([&] { order.push_back(2); });
  last.wait();
  first.wait();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_THROW(bad.wait(), CommError);
}

TEST(Stream, an_inline_stream_is_done_or_throws_when_submit_returns) {
  Stream stream;
  int runs = 0;
  EXPECT_TRUE(stream.submit([&] { ++runs; }).ready());
  EXPECT_EQ(runs, 1);
  EXPECT_THROW(stream.submit([] { fail<CommError>("broken"); }), CommError);
}

TEST(Stream, a_stream_that_ends_runs_what_it_was_given) {
  std::atomic<int> runs = 0;
  Event last;
  {
    Stream stream(Stream::Kind::worker, "test");
    for (int i = 0; i < 100; ++i) last = stream.submit([&] { ++runs; });
  }
  EXPECT_EQ(runs, 100);
  EXPECT_TRUE(last.ready());
}

TEST(Stream, an_event_is_ready_when_its_task_is_done_and_what_the_task_held_is_gone) {
  Stream stream(Stream::Kind::worker, "test");
  std::atomic<bool> go = false;
  auto held = std::make_shared<int>(1);
  const Event first = stream.submit([&] { go.wait(false); }), second = stream.submit([held] {});
  EXPECT_FALSE(first.ready() || second.ready());
  go = true;
  go.notify_one();
  second.wait();
  EXPECT_TRUE(first.ready());
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_TRUE(Event().ready()) << "an event of nothing";
}

}  // namespace
}  // namespace nought
