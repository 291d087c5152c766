#include "nought/cli/standard_streams.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace nought::standard_streams_test {
namespace {

bool is_null(int fd) {
  struct stat given {
  }, null{};
  return fstat(fd, &given) == 0 && stat("/dev/null", &null) == 0 && given.st_rdev == null.st_rdev;
}

TEST(StandardStreamsDeathTest, what_is_missing_becomes_the_null_device_and_what_is_there_stays) {
  EXPECT_EXIT(
      {
        close(STDIN_FILENO);
        close(STDOUT_FILENO);
        open_missing_streams();
        const bool right = is_null(STDIN_FILENO) && is_null(STDOUT_FILENO) && !is_null(STDERR_FILENO);
        const int next = open("/dev/zero", O_RDONLY);
        _exit(right && next > STDERR_FILENO ? 3 : 4);
      },
      testing::ExitedWithCode(3), "");
}

}  // namespace
}  // namespace nought::standard_streams_test
