// What streams of a device hold goes when the order of calls says so.
#include "nought/tensor/held_work.h"

#include <memory>
#include <utility>

#include <gtest/gtest.h>

namespace nought::held_work_test {
namespace {

class HeldWorkTest : public ::testing::Test {
 protected:
  /// A point of the stream behind a task with memory of the device and of the host.
  uint64_t work(HeldWork& stream) {
    const uint64_t point = stream.mark();
    stream.hold(point, [held = device_] {});
    stream.hold_host(point, host_);
    return point;
  }
  /// Tasks that hold memory of the device, and of the host.
  std::pair<long, long> held() const { return {device_.use_count() - 1, host_.use_count() - 1}; }

  std::shared_ptr<int> device_ = std::make_shared<int>(), host_ = std::make_shared<int>();
  std::shared_ptr<HeldWork> compute_ = std::make_shared<HeldWork>(), copies_ = std::make_shared<HeldWork>();
};

using Held = std::pair<long, long>;

TEST_F(HeldWorkTest, memory_of_the_device_goes_when_the_compute_stream_waits) {
  const uint64_t first = work(*copies_);
  work(*copies_);
  EXPECT_EQ(held(), Held(2, 2));
  copies_->passed(first);
  EXPECT_EQ(held(), Held(1, 2)) << "the copy may not have read the host's memory";
}

TEST_F(HeldWorkTest, all_of_it_goes_when_the_host_knows_that_it_is_done) {
  const uint64_t first = work(*copies_);
  work(*copies_);
  copies_->reached(first);
  EXPECT_EQ(held(), Held(1, 1));
  copies_->clear();
  EXPECT_EQ(held(), Held(0, 0));
}

TEST_F(HeldWorkTest, what_a_stream_has_waited_for_is_done_when_it_is) {
  const uint64_t before = compute_->mark(), copied = work(*copies_);
  compute_->follow(copies_, copied);
  compute_->reached(before);
  EXPECT_EQ(held(), Held(1, 1)) << "that point lies before the wait";
  work(*copies_);  // nobody waits for it
  compute_->reached(compute_->mark());
  EXPECT_EQ(held(), Held(1, 1));
}

TEST_F(HeldWorkTest, streams_that_wait_for_each_other_in_turn_let_all_go) {
  const uint64_t copied = work(*copies_);
  compute_->follow(copies_, copied);
  const uint64_t computed = work(*compute_);
  copies_->follow(compute_, computed);
  const uint64_t last = copies_->mark();
  copies_->reached(last);
  EXPECT_EQ(held(), Held(0, 0));
}

TEST_F(HeldWorkTest, a_stream_that_is_gone_is_followed_by_nobody) {
  compute_->follow(copies_, work(*copies_));
  copies_.reset();
  EXPECT_EQ(held(), Held(0, 0));
  compute_->reached(compute_->mark());
}

}  // namespace
}  // namespace nought::held_work_test
