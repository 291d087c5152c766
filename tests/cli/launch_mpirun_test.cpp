#include "nought/cli/launch_mpirun.h"

#include "support/environment.h"
#include "support/size.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/cli/openmp_waiting.h"
#include "nought/comm/flight_keeper.h"

namespace nought::launch_mpirun_test {
namespace {

NOUGHT_FILE_SIZE(small);

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::StartsWith;

/// The command does not depend on what the person who runs the tests has set.
class MpirunCommandLine : public ::testing::Test {
  const test::Environment unset_{{"OMP_NUM_THREADS", ""}, {"DEEPSPEED_TIMEOUT", ""}, {"TORCH_DISTRIBUTED_DEBUG", ""},
                                 {kSpinVariable, ""},     {kWaitPolicyVariable, ""}, {kColumnsVariable, ""}};
};

TEST_F(MpirunCommandLine, each_rank_is_bound_to_its_share_of_the_cores) {
  const MpirunCommand command = mpirun_command(
      "/bin/mpirun", {.ranks = 3, .hosts = {}, .program = "/bin/nought", .arguments = {"train", "a b"}}, {8, 8}, false);
  EXPECT_THAT(command.arguments,
              ElementsAre("/bin/mpirun", "-n", "3", "--map-by", "slot:PE=2", "--bind-to", "core", "-x", kSpinVariable,
                          "-x", kColumnsVariable, "-x", kFlightKeeperVariable, "/bin/nought", "train", "a b"));
  EXPECT_THAT(command.environment, Contains("OMP_NUM_THREADS=2"));
}

TEST_F(MpirunCommandLine, more_ranks_than_cores_share_them_unbound) {
  const MpirunCommand command =
      mpirun_command("mpirun", {.ranks = 4, .hosts = {}, .program = "nought", .arguments = {}}, {2, 2}, false);
  EXPECT_THAT(command.arguments, IsSupersetOf({"--oversubscribe", "none"}));
  EXPECT_THAT(command.environment, Contains("OMP_NUM_THREADS=1"));
}

TEST_F(MpirunCommandLine, several_machines_divide_their_cores_themselves) {
  const MpirunCommand command = mpirun_command(
      "mpirun", {.ranks = 0, .hosts = {{"h1", 2, 1}, {"h2", 4, 2}}, .program = "nought", .arguments = {}}, {2, 2},
      false);
  EXPECT_THAT(command.arguments, IsSupersetOf({"--host", "h1:2,h2:4", "none"}));
  EXPECT_THAT(command.arguments, Not(Contains("-n")));
  EXPECT_THAT(command.arguments, Not(Contains("--oversubscribe")));
  EXPECT_THAT(command.environment, Not(Contains(StartsWith("OMP_NUM_THREADS"))));
}

}  // namespace
}  // namespace nought::launch_mpirun_test
