// What ranks that are threads say when a collective does not end, and how calls are compared before they run. Ranks
// that are processes: mpi_main.cpp.
#include "nought/comm/flight_timeout.h"

#include <future>

#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/flight_report.h"
#include "nought/comm/thread.h"

namespace nought::flight_timeout_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

/// The ranks but the last wait for it in a collective; it does something else until they have given up. Returns what
/// the rank that timed out says, in the group that make() gives.
std::string message_of_late_rank(int ranks, const std::function<void(Communicator&)>& late,
                                 const std::string& folder = "") {
  std::promise<void> given_up;
  const auto heard = given_up.get_future().share();
  std::mutex mutex;
  std::string message;
  run_ranks(ranks, [&](Communicator& world, const Context& context) {
    world.set_timeout(milliseconds(200));
    world.recorder()->set_folder(folder);
    world.recorder()->set_step(12);
    if (world.rank() == ranks - 1) {
      late(world);
      heard.wait_for(seconds(20));
      return;
    }
    note_phase(world, "forward");
    const FlightSubject subject(world, "block.3");
    try {
      world.all_reduce(context.zeros({1 << 18}, DType::f32)).wait();
    } catch (const CollectiveTimeout& error) {
      const std::lock_guard lock(mutex);
      message = error.what();
      given_up.set_value();
    } catch (const CommError&) {  // one rank speaks for all
    }
  });
  return message;
}

TEST(FlightTimeout, a_rank_in_an_endless_loop_is_named_with_what_it_does) {
  const std::string message = message_of_late_rank(3, [](Communicator& world) { note_phase(world, "data"); });
  EXPECT_THAT(message, StartsWith("all_reduce of 1.00 MiB f32 in group of 3 timed out after 0.2s on rank "));
  EXPECT_THAT(message, AllOf(HasSubstr(fmt::format(": rank 2 (pid {} on ", getpid())),
                             HasSubstr(" has not come to call 1 of world (all_reduce of 1.00 MiB f32 for block.3, step "
                                       "12): in data, step 12, for "),
                             HasSubstr("\n  rank  host "),
                             HasSubstr("s in call 1 of world (all_reduce of 1.00 MiB f32 for block.3, step "
                                       "12); forward, step 12"),
                             Not(HasSubstr("nought trace"))));
}

TEST(FlightTimeout, a_rank_that_waits_in_another_call_is_named_with_it) {
  const std::string message = message_of_late_rank(2, [](Communicator& world) {
    world.set_timeout(seconds(20));
    const Context context = Context::cpu();
    try {
      world.recv(context.zeros({16}, DType::f32), 0).wait();
    } catch (const CommError&) {
    }
  });
  EXPECT_THAT(message, HasSubstr("has not come to call 1 of world (all_reduce"));
  EXPECT_THAT(message, HasSubstr("in message 1 of world (recv of 64 B f32 with rank 0, step 12); starting, step 12"));
}

TEST(FlightTimeout, the_files_of_all_ranks_tell_the_same_as_the_message) {
  const test::TempFolder folder;
  const std::string message = message_of_late_rank(
      3, [](Communicator& world) { note_phase(world, "data"); }, folder.path().string());
  EXPECT_THAT(message, HasSubstr(fmt::format("\n  the last 2000 calls of each rank: nought trace {}/*.flight",
                                             folder.path().string())));
  std::vector<FlightSnapshot> ranks;
  for (int rank = 0; rank < 3; ++rank) ranks.push_back(read_flight_file(flight_file(folder.path(), rank)));
  const FlightReport report = flight_report(ranks);
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_THAT(report.findings[0], HasSubstr("has not come to call 1 of world (all_reduce of 1.00 MiB f32 for block.3"));
}

/// The message of a job of three ranks whose last one issues another call of the same size.
std::string message_of_mismatch(bool check) {
  std::string message;
  try {
    run_ranks(3, [&](Communicator& world, const Context& context) {
      world.set_timeout(seconds(20));
      world.check_calls(check);
      const Tensor full = context.zeros({3 * 1024}, DType::f32), part = context.zeros({1024}, DType::f32);
      world.all_gather(part, full).wait();
      const FlightSubject subject(world, world.rank() == 2 ? "block.4" : "block.3");
      world.all_gather(part, full).wait();
    });
  } catch (const CommError& error) {
    message = error.what();
  }
  return message;
}

TEST(FlightTimeout, calls_of_the_same_size_for_other_Units_differ_where_they_are_compared) {
  EXPECT_EQ(message_of_mismatch(false), "");
  EXPECT_EQ(message_of_mismatch(true),
            "call 2 of world differs: rank 0 issues all_gather of 12.0 KiB f32 for block.3 in step 0, rank 2 issues "
            "all_gather of 12.0 KiB f32 for block.4 in step 0; ranks must issue the same calls");
}

TEST(FlightTimeout, another_operation_is_named_before_it_runs_in_subgroups_too) {
  std::string message;
  try {
    run_ranks(2, [&](Communicator& world, const Context& context) {
      world.set_timeout(seconds(20));
      world.check_calls(true);
      const auto pair = world.split(0, world.rank());
      const Tensor x = context.zeros({8}, DType::f32);
      const Event event = world.rank() == 0 ? pair->all_reduce(x) : pair->broadcast(x, 0);
      event.wait();
    });
  } catch (const CommError& error) {
    message = error.what();
  }
  EXPECT_EQ(
      message,
      "call 1 of world/1.0 differs: rank 0 issues all_reduce of 32 B f32 in step 0, rank 1 issues broadcast of 32 "
      "B f32 at root 0 in step 0; ranks must issue the same calls");
}

TEST(FlightTimeout, compared_calls_have_the_same_results) {
  run_ranks(3, [](Communicator& world, const Context& context) {
    world.check_calls(true);
    const Tensor x = context.zeros({5}, DType::f32);
    context.run(Fill{.x = x, .value = static_cast<float>(world.rank() + 1)});
    world.all_reduce(x).wait();
    world.barrier().wait();
    if (world.rank() == 0) world.send(x, 2).wait();  // messages are not compared
    if (world.rank() == 2) world.recv(x, 0).wait();
    EXPECT_EQ(context.to_host<float>(x), std::vector<float>(5, 6.0F));
  });
}

}  // namespace
}  // namespace nought::flight_timeout_test
