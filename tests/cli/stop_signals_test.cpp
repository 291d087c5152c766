#include "nought/cli/stop_signals.h"

#include <csignal>

#include <gtest/gtest.h>
#include <unistd.h>

namespace nought::stop_signals_test {
namespace {

/// A shell that starts a program in the background has it ignore SIGINT, and what is ignored stays ignored.
void ignore_no_signal() {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) std::signal(signal, SIG_DFL);
}

TEST(StopSignals, remember_the_first_signal_and_write_what_a_second_one_does) {
  ignore_no_signal();
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) {
    testing::internal::CaptureStderr();
    {
      const StopSignals signals(/*announce=*/true);
      EXPECT_EQ(StopSignals::asked(), 0);
      raise(signal);
      EXPECT_EQ(StopSignals::asked(), signal);
      raise(SIGTERM);  // at the same time: one wish
      EXPECT_EQ(StopSignals::asked(), signal);
    }
    EXPECT_EQ(testing::internal::GetCapturedStderr(), kStopWord);
    EXPECT_EQ(StopSignals::asked(), signal) << "what was asked stays asked";
  }
}

TEST(StopSignals, a_second_signal_ends_the_process_as_if_nobody_had_caught_it) {
  ignore_no_signal();
  for (const int second : {SIGINT, SIGTERM, SIGUSR1})
    EXPECT_EXIT(
        {
          const StopSignals signals(/*announce=*/false);
          raise(SIGUSR1);
          usleep(static_cast<useconds_t>(std::chrono::microseconds(kOneWish + std::chrono::milliseconds(100)).count()));
          raise(second);
        },
        testing::KilledBySignal(second), "^$");
}

TEST(StopSignals, what_the_process_did_before_comes_back_and_what_it_ignored_stays_ignored) {
  std::signal(SIGINT, SIG_IGN);
  {
    const StopSignals signals(/*announce=*/false);
    raise(SIGINT);
    EXPECT_EQ(StopSignals::asked(), 0) << "a shell's background job";
  }
  EXPECT_EQ(std::signal(SIGINT, SIG_DFL), SIG_IGN);
  EXPECT_EQ(std::signal(SIGTERM, SIG_DFL), SIG_DFL);
}

TEST(StopSignals, exit_codes_are_those_of_a_shell) {
  EXPECT_EQ(exit_code_of(SIGINT), 130);
  EXPECT_EQ(exit_code_of(SIGTERM), 143);
  EXPECT_EQ(exit_code_of(SIGUSR1), 138);
}

}  // namespace
}  // namespace nought::stop_signals_test
