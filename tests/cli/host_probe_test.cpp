// Hosts that do not answer are found, and named.
#include "nought/cli/host_probe.h"

#include "support/environment.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "nought/cli/remote_calls.h"

namespace nought::host_probe_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(HostProbe, names_hosts_that_do_not_answer) {
  const test::TempFolder folder;
  const std::string agent =
      folder.write("agent", "#!/bin/sh\ncase $1 in up) exit 0 ;; slow) sleep 30 ;; *) exit 255 ;; esac\n").string();
  ASSERT_EQ(chmod(agent.c_str(), 0700), 0);
  const test::Environment set{{"OMPI_MCA_plm_rsh_agent", agent}};
  EXPECT_THAT(remote_agent(), ElementsAre(agent));
  const std::vector<Host> hosts{{"up", 2, 1}, {"down", 2, 3}, {"localhost", 1, 4}, {"slow", 1, 5}};
  const std::vector<Host> silent = silent_hosts(hosts, std::chrono::seconds(1));
  ASSERT_EQ(silent.size(), 2);
  EXPECT_EQ(silent[0].name, "down");
  EXPECT_EQ(silent[1].name, "slow");
  EXPECT_THAT(describe_silent(silent), HasSubstr("hosts down (line 3 of the host file), slow (line 5"));
  EXPECT_THAT(describe_silent(silent), HasSubstr("--exclude down"));
  EXPECT_EQ(describe_silent({}), "");
}

TEST(HostProbe, asks_by_ssh_where_nothing_else_is_said) {
  const test::Environment set{{"OMPI_MCA_plm_rsh_agent", ""}};
  EXPECT_THAT(remote_agent(), ElementsAre("ssh"));
}

}  // namespace
}  // namespace nought::host_probe_test
