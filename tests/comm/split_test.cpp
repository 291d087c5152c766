// What a subgroup takes over from the group that it was split from.
#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/thread.h"

namespace nought::split_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Split, a_subgroup_has_the_time_limit_of_its_group) {
  std::promise<void> timed_out;
  run_ranks(2, [&, heard = timed_out.get_future().share()](Communicator& group, const Context& context) {
    group.set_timeout(milliseconds(50));
    const auto pair = group.split(0, group.rank());
    if (group.rank() == 1) {
      heard.wait_for(seconds(20));  // without the limit rank 0 hears of the end of this rank instead
      return;
    }
    std::string message;
    try {
      pair->all_reduce(context.zeros({10}, DType::f32)).wait();
    } catch (const Error& error) {
      message = error.what();
    }
    timed_out.set_value();
    EXPECT_THAT(message, testing::HasSubstr("timed out after 0.05s on rank 0"));
  });
}

TEST(Split, a_subgroup_records_on_the_timeline_of_its_group) {
  run_ranks(2, [](Communicator& group, const Context& context) {
    const auto timeline = std::make_shared<Timeline>();
    group.record(timeline);
    const auto pair = group.split(0, group.rank());
    timeline->start();
    pair->all_reduce(context.zeros({10}, DType::f32)).wait();
    pair->barrier().wait();
    const std::vector<TraceEvent> events = timeline->take();
    ASSERT_FALSE(events.empty());
    EXPECT_EQ(events.front().name, "all_reduce");
  });
}

}  // namespace
}  // namespace nought::split_test
