#include "nought/comm/thread.h"

#include <atomic>
#include <future>

#include "support/communicator_checks.h"
#include "support/size.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::thread_test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

class ThreadRanks : public testing::TestWithParam<int> {};

NOUGHT_SIZE(medium);
TEST_P(ThreadRanks, collectives_equal_plain_loops_bit_for_bit) { run_ranks(GetParam(), test::check_collectives); }
NOUGHT_SIZE(medium);
TEST_P(ThreadRanks, several_collectives_in_flight) { run_ranks(GetParam(), test::check_overlap); }
TEST_P(ThreadRanks, subgroups_are_groups) { run_ranks(GetParam(), test::check_split); }
NOUGHT_SIZE(medium);
TEST_P(ThreadRanks, sends_meet_their_receives) { run_ranks(GetParam(), test::check_send_recv); }
TEST_P(ThreadRanks, traffic_equals_the_formulas) { run_ranks(GetParam(), test::check_traffic); }
NOUGHT_SIZE(medium);
TEST_P(ThreadRanks, workspace_is_bounded) { run_ranks(GetParam(), test::check_workspace); }

INSTANTIATE_TEST_SUITE_P(sizes, ThreadRanks, testing::Values(1, 3, 4, 5, 8));

/// Under the sanitizers, too, which the others take long.
NOUGHT_SIZE(medium);
TEST(TwoThreadRanks, pass_every_check) { run_ranks(2, test::check_communicator); }

template <class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Thread, a_failing_rank_ends_the_waiting_of_the_others) {
  std::atomic<int> peers_told = 0;
  const auto body = [&](Communicator& group, const Context& context) {
    const Tensor x = context.zeros({1000}, DType::f32);
    group.all_reduce(x).wait();
    if (group.rank() == 2) fail<ConfigError>("the data ended");
    try {
      group.all_reduce(x).wait();
    } catch (const PeerError& error) {
      EXPECT_THAT(error.what(), HasSubstr("all_reduce of 3.91 KiB f32 in group of 4 cannot finish on rank"));
      EXPECT_THAT(error.what(), HasSubstr("rank 2 failed: the data ended"));
      EXPECT_THROW(group.barrier().wait(), PeerError) << "later calls fail at once";
      ++peers_told;
      throw;
    }
  };
  EXPECT_THROW(run_ranks(4, body), ConfigError) << "the cause is rethrown, not its consequences on lower ranks";
  EXPECT_EQ(peers_told, 3);
}

TEST(Thread, a_subgroup_that_dies_with_an_exception_in_flight_does_not_wait) {
  const auto body = [](Communicator& group, const Context& context) {
    const auto pair = group.split(0, group.rank());
    const Tensor x = context.zeros({10}, DType::f32);
    if (group.rank() == 0) {
      pair->all_reduce(x);  // never met by rank 1
      fail<IoError>("the disk is full");
    }
    group.barrier().wait();
  };
  EXPECT_THROW(run_ranks(2, body), IoError);
}

TEST(Thread, a_rank_that_ended_is_not_waited_for) {
  const auto body = [](Communicator& group) {
    if (group.rank() == 0) group.barrier().wait();
  };
  EXPECT_THAT(message_of([&] { run_ranks(2, body); }), HasSubstr("rank 1 has ended"));
}

TEST(Thread, a_timeout_names_the_collective) {
  std::promise<void> timed_out;
  const auto body = [&, heard = timed_out.get_future().share()](Communicator& group, const Context& context) {
    if (group.rank() == 1) {
      heard.wait_for(std::chrono::seconds(20));  // without the limit rank 0 hears of the end of this rank instead
      return;
    }
    group.set_timeout(milliseconds(50));
    const Event event = group.all_gather(context.zeros({1 << 20}, DType::f32), context.zeros({2 << 20}, DType::f32));
    const std::string message = message_of([&] { event.wait(); });
    timed_out.set_value();
    EXPECT_THAT(message, HasSubstr("all_gather of 8.00 MiB f32 in group of 2 timed out after 0.05s on rank 0"));
  };
  run_ranks(2, body);
}

TEST(Thread, different_large_calls_are_reported_on_every_rank) {
  run_ranks(4, [](Communicator& group, const Context& context) {
    const Tensor x = context.zeros({100'000}, DType::f32);
    const auto op = [&] { return group.rank() == 3 ? group.broadcast(x, 0) : group.all_reduce(x); };
    EXPECT_THAT(message_of([&] { op().wait(); }), HasSubstr("rank 3 issued broadcast of"));
    group.barrier().wait();  // and the group lives on
  });
}

TEST(Thread, different_calls_are_reported_on_every_rank) {
  const auto body = [](Communicator& group, const Context& context) {
    const Tensor x = context.zeros({4}, DType::f32);
    const std::string message = message_of([&] {
      if (group.rank() == 0) {
        group.all_reduce(x).wait();
      } else {
        group.broadcast(x, 1).wait();
      }
    });
    EXPECT_THAT(message,
                HasSubstr("rank 0 issued all_reduce of 16 B f32 in group of 2 (root 0), rank 1 issued broadcast"));
    group.barrier().wait();  // and the group lives on
  };
  run_ranks(2, body);
}

TEST(Thread, max_and_min_keep_nan) {
  const auto body = [](Communicator& group, const Context& context) {
    for (ReduceOp op : {ReduceOp::max, ReduceOp::min}) {
      const Tensor x = context.zeros({3}, DType::f32);
      x.data<float>()[group.rank()] = std::numeric_limits<float>::quiet_NaN();
      group.all_reduce(x, op).wait();
      for (float value : x.span<float>()) EXPECT_TRUE(std::isnan(value));
    }
  };
  run_ranks(3, body);
}

/// In small tensors, of which one rank does the parts of all, and in large ones.
TEST(Thread, rows_that_nobody_expects_are_refused) {
  for (const int64_t width : {int64_t{4}, int64_t{20'000}}) {
    const auto body = [&](Communicator& group, const Context& context) {
      const int64_t rows = group.rank() == 0 ? 3 : 2;  // rank 0 sends 2, rank 1 expects 1
      const RowCounts counts = group.rank() == 0 ? RowCounts{{1, 2}, {1, 1}} : RowCounts{{1, 1}, {1, 1}};
      const Tensor in = context.zeros({rows, width}, DType::f32), out = context.zeros({2, width}, DType::f32);
      group.all_to_all_v(in, out, counts).wait();
    };
    EXPECT_THAT(message_of([&] { run_ranks(2, body); }),
                HasSubstr(fmt::format("on rank 1: rank 0 sent f32[2, {0}] where f32[1, {0}] was expected", width)));
  }
}

TEST(Thread, tensors_that_do_not_fit_are_refused) {
  const auto body = [](Communicator& group, const Context& context) {
    const Tensor x = context.zeros({3}, DType::f32), y = context.zeros({5}, DType::f32);
    EXPECT_THAT(message_of([&] { group.all_gather(x, y); }), HasSubstr("f32[5] must have the dtype and 2 times"));
    EXPECT_THAT(message_of([&] { group.all_reduce(Tensor()); }), HasSubstr("all_reduce needs"));
    EXPECT_THAT(message_of([&] { group.broadcast(x, 2); }), HasSubstr("root 2 is not a rank of a group of 2"));
    EXPECT_THAT(message_of([&] { group.send(x, group.rank()); }), HasSubstr("is itself"));
    EXPECT_THAT(message_of([&] { group.all_to_all(y, y); }), HasSubstr("does not divide into 2 parts"));
  };
  run_ranks(2, body);
}

}  // namespace
}  // namespace nought::thread_test
