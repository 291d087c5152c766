// A job that a supervisor attends to: its end is told as it was, and nothing of it is left.
#include "nought/cli/supervised_job.h"

#include <csignal>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "nought/base/process.h"
#include "nought/cli/child_process.h"
#include "nought/comm/flight_keeper.h"
#include "nought/comm/flight_recorder.h"
#include "nought/comm/self.h"

namespace nought::supervised_job_test {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

/// What jobs of these tests do: run_supervised() starts this program again.
TEST(SupervisedJobs, DISABLED_fail_with_a_message) {
  std::fprintf(stderr, "a line\nnought: error: the disk is full\nnought: error: [rank 1] so it is\n");
  _exit(3);
}
TEST(SupervisedJobs, DISABLED_die) { raise(SIGKILL); }
TEST(SupervisedJobs, DISABLED_stop_for_a_signal) {
  std::signal(SIGTERM, [](int) { _exit(143); });
  kill(getppid(), SIGTERM);
  for (;;) pause();
}
TEST(SupervisedJobs, DISABLED_hang_with_a_child) {
  const auto world = make_recorded_self_communicator();
  world->recorder()->set_step(7);
  world->recorder()->set_phase("forward");
  if (fork() == 0) prctl(PR_SET_PDEATHSIG, 0);
  for (;;) pause();
}
TEST(SupervisedJobs, DISABLED_leave_a_child) {
  if (fork() != 0) _exit(0);
  for (;;) pause();
}
TEST(SupervisedJobs, DISABLED_get_on_slowly) {
  const auto world = make_recorded_self_communicator();
  for (int64_t step = 1; step <= 6; ++step) {
    world->recorder()->set_step(step);
    std::this_thread::sleep_for(milliseconds(100));
  }
  _exit(0);
}

class SupervisedJobTest : public testing::Test {
 protected:
  SupervisedJobTest() { prctl(PR_SET_CHILD_SUBREAPER, 1); }
  ~SupervisedJobTest() override { prctl(PR_SET_CHILD_SUBREAPER, 0); }

  JobEnd end_of(const std::string& what, milliseconds patience = milliseconds(20'000)) {
    const SupervisedJob job{.arguments = {"--gtest_also_run_disabled_tests", "--gtest_brief=1",
                                          "--gtest_filter=SupervisedJobs.DISABLED_" + what},
                            .ranks = 1,
                            .patience = patience};
    JobEnd end = run_supervised(job, signals_);
    EXPECT_THAT(descendants_of(getpid()), IsEmpty());
    return end;
  }

 private:
  EndingSignals signals_;
};

TEST_F(SupervisedJobTest, its_first_error_is_the_cause) {
  const JobEnd end = end_of("fail_with_a_message");
  EXPECT_EQ(end.code, 3);
  EXPECT_EQ(end.cause, "the disk is full");
  EXPECT_EQ(end.wish, 0);
  EXPECT_EQ(end.step, 0);
}

TEST_F(SupervisedJobTest, a_signal_that_ended_it_is_told) {
  const JobEnd end = end_of("die");
  EXPECT_EQ(end.code, 137);
  EXPECT_THAT(end.cause, HasSubstr("signal 9 (Killed)"));
}

TEST_F(SupervisedJobTest, a_signal_to_the_supervisor_is_passed_on) {
  const JobEnd end = end_of("stop_for_a_signal");
  EXPECT_EQ(end.wish, SIGTERM);
  EXPECT_EQ(end.code, 143);
}

TEST_F(SupervisedJobTest, that_hangs_is_ended_with_what_it_started) {
  const JobEnd end = end_of("hang_with_a_child", milliseconds(400));
  EXPECT_TRUE(end.hung);
  EXPECT_EQ(end.step, 7);
  EXPECT_EQ(end.rank, 0);
  EXPECT_THAT(end.cause,
              AllOf(HasSubstr("no rank got on"), HasSubstr("rank 0 (pid "), HasSubstr("in forward, step 7")));
}

TEST_F(SupervisedJobTest, what_it_leaves_is_ended) { EXPECT_EQ(end_of("leave_a_child").code, 0); }

TEST_F(SupervisedJobTest, that_gets_on_is_not_hung) {
  const JobEnd end = end_of("get_on_slowly", milliseconds(400));
  EXPECT_FALSE(end.hung);
  EXPECT_EQ(end.step, 6);
}

TEST(LostRank, is_read_from_what_mpirun_says) {
  const LostRank lost = lost_rank_of("mpirun noticed that process rank 12 on node vm-3 exited on signal 9 (Killed).");
  EXPECT_EQ(lost.rank, 12);
  EXPECT_EQ(lost.host, "vm-3");
  EXPECT_EQ(lost_rank_of("out of memory").rank, -1);
}

}  // namespace
}  // namespace nought::supervised_job_test
