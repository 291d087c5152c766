#include "nought/cli/failure.h"

#include <new>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "nought/base/error.h"

namespace nought {
namespace {

template <class E>
std::string described(E error) {
  return describe(std::make_exception_ptr(std::move(error)));
}

TEST(Failure, an_error_says_its_message_and_what_is_no_error_of_ours_says_so) {
  EXPECT_EQ(described(ConfigError("stage must be 0, 1, 2 or 3")), "stage must be 0, 1, 2 or 3");
  EXPECT_EQ(described(std::runtime_error("oops")), "internal error: oops");
  EXPECT_EQ(described(std::bad_alloc()), "out of memory: the system refused an allocation");
  EXPECT_EQ(described(3), "internal error: an exception of an unknown type");
  EXPECT_EQ(describe(nullptr), "the program ended itself without an exception");
}

TEST(FailureDeathTest, a_message_is_one_line_on_stderr_behind_what_was_printed) {
  EXPECT_EXIT(
      {
        print_error("first\nsecond\n\n");
        _exit(0);
      },
      testing::ExitedWithCode(0), "^nought: error: first\nsecond\n$");
}

TEST(FailureDeathTest, an_exception_that_nobody_caught_ends_the_process_with_its_line) {
  EXPECT_EXIT(
      {
        catch_failures_of_threads();
        std::thread([] { throw IoError("the disk is full"); }).join();
      },
      testing::ExitedWithCode(1), "^nought: error: the disk is full\n$");
}

}  // namespace
}  // namespace nought
