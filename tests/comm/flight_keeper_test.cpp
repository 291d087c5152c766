// Pages that another process keeps for a rank.
#include "nought/comm/flight_keeper.h"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nought/base/host.h"
#include "nought/comm/flight_recorder.h"
#include "nought/comm/self.h"

namespace nought::flight_keeper_test {
namespace {

using testing::HasSubstr;

TEST(FlightKeeper, knows_what_a_rank_did_when_it_is_gone) {
  const FlightKeeper keeper(2);
  StandstillWatch watch(keeper);
  EXPECT_GE(watch.standstill().count(), 0);
  EXPECT_FALSE(watch.begun());
  EXPECT_EQ(keeper.progress(), 0);
  EXPECT_EQ(keeper.step(), 0);
  EXPECT_EQ(keeper.lost_rank(), -1) << "none has come yet";
  EXPECT_EQ(keeper.describe(0), "");
  std::string variable = keeper.variable();
  const pid_t child = fork();
  if (child == 0) {
    putenv(variable.data());
    const auto world = make_recorded_self_communicator();
    world->recorder()->set_step(3);
    world->recorder()->set_phase("backward");
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_GT(keeper.progress(), 0);
  EXPECT_EQ(watch.standstill().count(), 0) << "it has moved";
  EXPECT_TRUE(watch.begun());
  EXPECT_GT(watch.standstill().count(), 0) << "and stands still again";
  EXPECT_EQ(keeper.step(), 3);
  EXPECT_EQ(keeper.lost_rank(), 0);
  EXPECT_THAT(keeper.describe(0), HasSubstr("is dead, in backward, step 3"));
}

TEST(FlightKeeper, of_another_host_or_for_other_ranks_is_none) {
  const FlightKeeper keeper(1);
  const auto opens = [&](std::string value, int rank) {
    setenv(kFlightKeeperVariable, value.c_str(), 1);
    const int descriptor = open_kept_page(rank);
    unsetenv(kFlightKeeperVariable);
    if (descriptor >= 0) close(descriptor);
    return descriptor >= 0;
  };
  const std::string variable = keeper.variable(), value = variable.substr(variable.find('=') + 1);
  EXPECT_TRUE(opens(value, 0));
  EXPECT_FALSE(opens(value, 1));
  EXPECT_FALSE(opens("other-" + value, 0));
  EXPECT_FALSE(opens(host_name() + ":1:0", 0)) << "no page lies there";
  EXPECT_FALSE(opens(host_name() + ":x:y", 0));
  EXPECT_FALSE(opens("", 0));
  EXPECT_EQ(open_kept_page(0), -1) << "nothing is supervised";
}

}  // namespace
}  // namespace nought::flight_keeper_test
