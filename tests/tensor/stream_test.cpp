#include "nought/tensor/stream.h"

#include <atomic>
#include <vector>

#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/tensor/late.h"

namespace nought::stream_test {
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

TEST(Stream, a_stream_can_wait_for_an_event_of_another) {
  Stream first(Stream::Kind::worker, "first"), second(Stream::Kind::worker, "second"), here;
  std::atomic<bool> go = false;
  int value = 0, seen = 0;
  const Event written = first.submit([&] {
    go.wait(false);
    value = 3;
  });
  second.wait(written);
  const Event read = second.submit([&] { seen = value; });
  EXPECT_FALSE(read.ready());
  go = true;
  go.notify_one();
  read.wait();
  EXPECT_EQ(seen, 3);
  here.wait(first.submit([&] { value = 4; }));
  EXPECT_EQ(value, 4) << "an inline stream waits at once";
  EXPECT_TRUE(here.record().ready());
}

TEST(Stream, a_late_stream_runs_what_somebody_waits_for_and_no_more) {
  std::vector<int> order;
  {
    Stream stream(Stream::Kind::late, "late");
    stream.submit([&] { order.push_back(1); });
    const Event second = stream.submit([&] { order.push_back(2); }), third = stream.submit([&] { order.push_back(3); });
    EXPECT_FALSE(second.ready());
    second.wait();
    EXPECT_EQ(order, (std::vector<int>{1, 2}));
    EXPECT_FALSE(third.ready());
    Stream other(Stream::Kind::late, "other");
    other.wait(third);
    other.submit([&] { order.push_back(4); }).wait();
    EXPECT_EQ(order, (std::vector<int>{1, 2, 3, 4})) << "a stream that waits is somebody";
    stream.submit([&] { order.push_back(5); });
    stream.synchronize();
    stream.submit([&] { order.push_back(6); });
  }
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3, 4, 5, 6})) << "what is left runs at the end";
}

TEST(Stream, a_late_stream_runs_what_is_demanded_and_the_host_goes_on) {
  std::atomic<bool> go = false;
  std::atomic<int> runs = 0;
  const auto run = [&] { ++runs; };
  Stream stream(Stream::Kind::late, "late");  // its end runs what is left, which needs the variables above
  stream.submit([&] { go.wait(false); });
  const Event second = stream.submit(run), third = stream.submit(run);
  demand(second);
  EXPECT_FALSE(second.ready()) << "the host did not wait: the task before waits for it";
  go = true;
  go.notify_one();
  while (!second.ready()) std::this_thread::yield();
  EXPECT_FALSE(third.ready());
  EXPECT_EQ(runs, 1) << "what is behind stays late";
  EXPECT_EQ(stream.waits_of(std::this_thread::get_id()), 0) << "it is no wait";
  demand(Event());
}

TEST(Stream, a_late_stream_counts_the_waits_of_each_thread) {
  Stream stream(Stream::Kind::late, "late"), other(Stream::Kind::late, "other");
  const std::thread::id me = std::this_thread::get_id();
  const Event event = stream.submit([] {});
  EXPECT_EQ(stream.waits_of(me), 0);
  event.wait();
  stream.synchronize();
  std::thread([&] { event.wait(); }).join();
  EXPECT_EQ(stream.waits_of(me), 2);
  other.wait(stream.submit([] {}));
  other.synchronize();
  EXPECT_EQ(stream.waits_of(me), 2) << "the thread of the other stream has waited";
  EXPECT_EQ(other.waits_of(me), 1);
  EXPECT_EQ(Stream().waits_of(me), 0);
}

TEST(Stream, what_follows_a_failure_on_a_late_stream_fails_as_it_did) {
  Stream stream(Stream::Kind::late, "late"), other(Stream::Kind::late, "other");
  int runs = 0;
  stream.submit([] { fail<CommError>("broken"); });
  other.wait(stream.record());
  const Event last = other.submit([&] { ++runs; });
  EXPECT_THROW(last.wait(), CommError);
  EXPECT_EQ(runs, 0);
  EXPECT_NO_THROW(other.synchronize());
}

}  // namespace
}  // namespace nought::stream_test
