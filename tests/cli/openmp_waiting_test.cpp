#include "nought/cli/openmp_waiting.h"

#include "support/known_paths.h"
#include "support/run_program.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::openmp_waiting_test {
namespace {

using test::run_program;
using ::testing::HasSubstr;

/// What ranks say of their waiting, by the environment that they begin with.
std::string ranks_with(const std::string& environment, const std::string& arguments) {
  return run_program("env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT " + environment + " " + test::known_path("ranks") +
                     " sum " + arguments)
      .out;
}

TEST(OpenMpWaiting, is_bounded_at_one_rank_and_at_several_unless_the_user_has_decided) {
  const std::string bounded = std::string("waits ") + kSpinRounds + "\n";
  EXPECT_THAT(ranks_with("OMP_NUM_THREADS=2", ""), HasSubstr(bounded));
  EXPECT_THAT(ranks_with("OMP_NUM_THREADS=2", "--ranks 2"), HasSubstr(bounded));
  EXPECT_THAT(ranks_with("OMP_NUM_THREADS=2 GOMP_SPINCOUNT=7", ""), HasSubstr("waits 7\n"));
  EXPECT_THAT(ranks_with("OMP_NUM_THREADS=2 OMP_WAIT_POLICY=active", ""), HasSubstr("waits as libgomp does\n"));
  EXPECT_THAT(ranks_with("OMP_NUM_THREADS=1", ""), HasSubstr("waits as libgomp does\n")) << "one thread waits for none";
}

}  // namespace
}  // namespace nought::openmp_waiting_test
