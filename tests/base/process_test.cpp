#include "nought/base/process.h"

#include <csignal>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace nought::process_test {
namespace {

TEST(Process, is_known_by_its_start_until_it_is_gone) {
  const std::optional<ProcessStat> own = process_stat(getpid());
  ASSERT_TRUE(own);
  EXPECT_EQ(own->state, 'R');
  const pid_t child = fork();
  if (child == 0) raise(SIGSTOP), _exit(0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  const std::optional<ProcessStat> stopped = process_stat(child);
  ASSERT_TRUE(stopped);
  EXPECT_EQ(stopped->state, 'T');
  EXPECT_GE(stopped->start, own->start);
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_FALSE(process_stat(child));
}

}  // namespace
}  // namespace nought::process_test
