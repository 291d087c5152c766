#include "nought/cli/launch_limits.h"

#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "nought/base/error.h"

namespace nought::launch_limits_test {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal_of(const LaunchLimits& limits, int ranks = 2) {
  return message_of<DeviceError>([&] { check_launch_limits(limits, ranks); });
}

TEST(LaunchLimits, each_is_named_with_what_is_needed_and_what_to_do) {
  EXPECT_EQ(refusal_of({}), "");
  EXPECT_THAT(refusal_of({.open_files = 32}),
              AllOf(HasSubstr("the limit of open files is 32 (ulimit -n), 2 ranks and mpirun need "),
                    HasSubstr("raise it with `ulimit -n ")));
  EXPECT_THAT(
      refusal_of({.file_bytes = 1 << 20}),
      AllOf(HasSubstr("the limit of the size of a file is 1.00 MiB (ulimit -f)"), HasSubstr("`ulimit -f unlimited`")));
  EXPECT_THAT(refusal_of({.shared_folder = "/dev/shm", .shared_bytes = 1 << 20}),
              AllOf(HasSubstr("/dev/shm has 1.00 MiB free"), HasSubstr("--shm-size")));
  EXPECT_THAT(refusal_of({.session_folder = "/tmp", .session_bytes = 4096}),
              AllOf(HasSubstr("/tmp has 4.00 KiB free"), HasSubstr("TMPDIR")));
}

TEST(LaunchLimits, more_ranks_need_more) {
  const LaunchLimits usual{.open_files = 1024, .shared_folder = "/dev/shm", .shared_bytes = 64 << 20};
  EXPECT_EQ(refusal_of(usual, 8), "");
  EXPECT_THAT(refusal_of(usual, 64), HasSubstr("/dev/shm"));
  EXPECT_THAT(refusal_of(usual, 1000), HasSubstr("1000 ranks"));
}

TEST(LaunchLimitsDeathTest, a_soft_limit_of_open_files_is_raised_before_it_is_judged) {
  EXPECT_EXIT(
      {
        rlimit limit{};
        getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = 32;
        setrlimit(RLIMIT_NOFILE, &limit);
        _exit(find_launch_limits().open_files > 32 ? 3 : 4);
      },
      testing::ExitedWithCode(3), "");
}

}  // namespace
}  // namespace nought::launch_limits_test
