// What a flight recorder keeps of a rank's calls and of what the rank does, and how others read it.
#include "nought/comm/flight_recorder.h"

#include <csignal>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nought/base/process.h"
#include "nought/comm/thread.h"

namespace nought::flight_recorder_test {
namespace {

FlightTicket issue(FlightRecorder& recorder, FlightMembership& group, Collective::Kind collective, int64_t bytes = 64) {
  return recorder.submit(group, collective, ReduceOp::sum, DType::f32, bytes, -1);
}

TEST(FlightRecorder, a_call_carries_group_number_operation_bytes_step_and_subject) {
  const auto page = FlightPage::make();
  FlightRecorder recorder(page, 1, 4, "a host");
  recorder.set_step(12);
  recorder.set_phase("forward");
  recorder.set_unit("block.2");
  FlightMembership world = recorder.join(1, "world", 1, 4);
  recorder.set_subject("block.3");
  const FlightTicket ticket = issue(recorder, world, Collective::all_gather, 12 << 20);
  recorder.set_subject("");
  recorder.start(ticket);
  const FlightSnapshot seen = flight_snapshot(*page);
  EXPECT_EQ(seen.header.rank, 1);
  EXPECT_EQ(seen.header.pid, getpid());
  EXPECT_EQ(flight_text(seen.header.host), "a host");
  EXPECT_EQ(flight_text(seen.activity.phase), "forward");
  EXPECT_EQ(flight_text(seen.activity.unit), "block.2");
  ASSERT_EQ(seen.calls.size(), 1u);
  EXPECT_EQ(seen.calls[0].str(), "all_gather of 12.0 MiB f32 for block.3");
  EXPECT_EQ(seen.calls[0].sequence, 1u);
  EXPECT_EQ(seen.calls[0].step, 12);
  EXPECT_EQ(seen.open_call(), &seen.calls[0]);
  ASSERT_NE(seen.group(1), nullptr);
  EXPECT_EQ(seen.group(1)->started, 1u);
  recorder.end(ticket, /*failed=*/false);
  const FlightSnapshot after = flight_snapshot(*page);
  EXPECT_EQ(after.open_call(), nullptr);
  EXPECT_EQ(after.group(1)->ended, 1u);
}

TEST(FlightRecorder, the_last_2000_calls_are_kept) {
  const auto page = FlightPage::make();
  FlightRecorder recorder(page, 0, 2, "");
  FlightMembership world = recorder.join(1, "world", 0, 2);
  FlightTicket first;
  for (int i = 0; i < 2100; ++i) {
    const FlightTicket ticket = issue(recorder, world, Collective::all_reduce);
    if (i == 0) first = ticket;
  }
  recorder.end(first, /*failed=*/true);  // its record is another call's by now
  const FlightSnapshot seen = flight_snapshot(*page);
  ASSERT_EQ(seen.calls.size(), 2000u);
  EXPECT_EQ(seen.calls.front().number, 101u);
  EXPECT_EQ(seen.calls.back().number, 2100u);
  EXPECT_EQ(seen.header.calls, 2100u);
  for (const FlightCall& call : seen.calls) EXPECT_EQ(call.ended, 0);
}

TEST(FlightRecorder, messages_do_not_count_among_collectives) {
  FlightRecorder recorder(FlightPage::make(), 0, 2, "");
  FlightMembership world = recorder.join(1, "world", 0, 2);
  issue(recorder, world, Collective::send);
  EXPECT_EQ(issue(recorder, world, Collective::all_reduce).sequence, 1u);
  EXPECT_EQ(issue(recorder, world, Collective::send).sequence, 2u);
}

TEST(FlightRecorder, sizes_tell_calls_apart_but_where_each_rank_sends_what_it_has) {
  const auto call = [](Collective::Kind collective, int64_t bytes) {
    return FlightCall{.bytes = bytes, .collective = collective};
  };
  EXPECT_FALSE(call(Collective::all_to_all, 64).matches(call(Collective::all_to_all, 128)));
  EXPECT_TRUE(call(Collective::all_to_all_v, 64).matches(call(Collective::all_to_all_v, 128)));
  EXPECT_FALSE(call(Collective::all_to_all_v, 64).matches(call(Collective::all_to_all, 64)));
}

TEST(FlightRecorder, a_place_is_free_again_when_its_group_has_ended) {
  FlightRecorder recorder(FlightPage::make(), 0, 2, "");
  for (int i = 0; i < 200; ++i) {
    const FlightMembership group = recorder.join(static_cast<uint64_t>(i) + 2, "group", 0, 2);
    EXPECT_EQ(group.place, 0);
    recorder.leave(group);
  }
}

TEST(FlightRecorder, ranks_give_a_group_the_same_identity_and_other_groups_others) {
  std::vector<uint64_t> identities(4);
  run_ranks(4, [&](Communicator& world) {
    const auto pair = world.split(world.rank() / 2, 0);
    pair->barrier().wait();
    const FlightSnapshot seen = flight_snapshot(*world.recorder()->page());
    identities[static_cast<size_t>(world.rank())] = seen.groups.back().identity;
    EXPECT_EQ(flight_text(seen.groups.back().name), world.rank() < 2 ? "world/1.0" : "world/1.1");
  });
  EXPECT_EQ(identities[0], identities[1]);
  EXPECT_EQ(identities[2], identities[3]);
  EXPECT_NE(identities[0], identities[2]);
}

TEST(FlightRecorder, another_process_reads_the_page_and_the_state_of_its_process) {
  const int file = FlightPage::make_file();
  if (file < 0) GTEST_SKIP() << "this system has no memfd";
  const auto page = FlightPage::map(file);
  ASSERT_NE(page, nullptr);
  const pid_t child = fork();
  if (child == 0) {
    FlightRecorder recorder(page, 0, 1, "host");
    recorder.set_phase("data");
    raise(SIGSTOP);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, WUNTRACED);
  EXPECT_TRUE(WIFSTOPPED(status));
  const auto opened = FlightPage::of_process(child, file);
  ASSERT_NE(opened, nullptr);
  EXPECT_EQ(flight_snapshot(*opened).header.state, RankState::stopped);
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  const FlightSnapshot seen = flight_snapshot(*opened);
  EXPECT_EQ(seen.header.state, RankState::dead);
  EXPECT_EQ(flight_text(seen.activity.phase), "data");
  close(file);
  EXPECT_EQ(FlightPage::of_process(getpid(), 0), nullptr) << "stdin is no page";
}

TEST(FlightRecorder, a_process_with_the_pid_of_a_dead_rank_is_not_taken_for_it) {
  const uint64_t start = process_stat(getpid()).value().start;
  EXPECT_EQ(state_of_process(getpid(), start), RankState::running);
  EXPECT_EQ(state_of_process(getpid(), start - 1), RankState::dead);
}

}  // namespace
}  // namespace nought::flight_recorder_test
