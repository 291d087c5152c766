#include "nought/base/process.h"

#include <array>
#include <csignal>

#include <gmock/gmock.h>
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

TEST(Process, has_descendants_as_long_as_they_live) {
  std::array<int, 2> ready{};
  ASSERT_EQ(pipe(ready.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    const pid_t grandchild = fork();
    if (grandchild != 0) [[maybe_unused]]
      const auto written = write(ready[1], &grandchild, sizeof grandchild);
    for (;;) pause();
  }
  pid_t grandchild = 0;
  ASSERT_EQ(read(ready[0], &grandchild, sizeof grandchild), static_cast<ssize_t>(sizeof grandchild));
  EXPECT_THAT(descendants_of(getpid()), testing::IsSupersetOf({child, grandchild}));
  EXPECT_THAT(descendants_of(child), testing::ElementsAre(grandchild));
  EXPECT_EQ(process_stat(grandchild)->parent, child);
  kill(grandchild, SIGKILL), kill(child, SIGKILL);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_THAT(descendants_of(child), testing::IsEmpty());
  close(ready[0]), close(ready[1]);
}

}  // namespace
}  // namespace nought::process_test
