// Host files as DeepSpeed has them, and what is said of bad ones.
#include "nought/cli/hostfile.h"

#include "support/message_of.h"
#include "support/size.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::hostfile_test {
namespace {

NOUGHT_FILE_SIZE(small);

using test::message_of;
using testing::HasSubstr;

std::string error(std::string_view text) {
  return message_of<ConfigError>([&] { parse_hostfile(text, "hosts"); });
}

TEST(Hostfile, has_a_host_and_its_slots_in_a_line) {
  const std::vector<Host> hosts = parse_hostfile("# the rack\nh1 slots=2\n\n  h2\tslots=4  # slower\n", "hosts");
  ASSERT_EQ(hosts.size(), 2);
  EXPECT_EQ(hosts[0].name, "h1");
  EXPECT_EQ(hosts[1].slots, 4);
  EXPECT_EQ(hosts[1].line, 4);
  EXPECT_EQ(total_slots(hosts), 6);
  EXPECT_EQ(for_mpirun(hosts), "h1:2,h2:4");
  const test::TempFolder folder;
  EXPECT_EQ(total_slots(read_hostfile(folder.write("hosts", "a slots=1").string())), 1);
}

TEST(Hostfile, that_is_wrong_is_refused_with_its_line) {
  EXPECT_EQ(error("h1 slots=2\nh2 slots=abc\n"),
            "hosts:2: host h2: slots: expected a number from 1 to 100000, found \"abc\"");
  EXPECT_THAT(error("h1 slots=0"), HasSubstr("hosts:1: host h1: slots: expected a number from 1"));
  EXPECT_THAT(error("h1 slots="), HasSubstr("found \"\""));
  EXPECT_EQ(error("h1\n"), "hosts:1: expected \"HOST slots=N\"");
  EXPECT_EQ(error("h1 slots=2 max_slots=4"), "hosts:1: expected \"HOST slots=N\"");
  EXPECT_EQ(error("h1 slots=2\nh1 slots=1"), "hosts:2: host h1 stands in line 1 already");
  EXPECT_THAT(error("# none\n"), HasSubstr("hosts: there is no host in it"));
  EXPECT_THAT(message_of<IoError>([] { read_hostfile("/nowhere/hosts"); }), HasSubstr("there is no such file"));
}

TEST(Hostfile, is_narrowed_by_include_and_exclude) {
  const std::vector<Host> hosts = parse_hostfile("h1 slots=2\nh2 slots=4\nh3 slots=1", "hosts");
  const auto chosen = [&](const char* include, const char* exclude) {
    return for_mpirun(choose_hosts(hosts, include, exclude, "hosts"));
  };
  EXPECT_EQ(chosen("", ""), "h1:2,h2:4,h3:1");
  EXPECT_EQ(chosen("h3@h2:0,2", ""), "h2:2,h3:1");
  EXPECT_EQ(chosen("", "h2"), "h1:2,h3:1");
  EXPECT_EQ(chosen("", "h2:1@h3:0"), "h1:2,h2:3");
  const auto refused = [&](const char* include, const char* exclude) {
    return message_of<ConfigError>([&] { chosen(include, exclude); });
  };
  EXPECT_EQ(refused("", "hh2"), "--exclude hh2: hosts has no host \"hh2\" (did you mean \"h2\"?)");
  EXPECT_EQ(refused("h2:4", ""), "--include h2:4: host h2 has slots 0 to 3, found \"4\"");
  EXPECT_THAT(refused("h2:", ""), HasSubstr("found \"\""));
  EXPECT_THAT(refused("h2@h2:1", ""), HasSubstr("host h2 is named twice"));
  EXPECT_THAT(refused("h1", "h2"), HasSubstr("both given"));
  EXPECT_THAT(refused("", "h1@h2@h3"), HasSubstr("leaves no host"));
}

TEST(Hostfile, may_be_an_allocation_of_slurm) {
  EXPECT_EQ(for_mpirun(hosts_of_slurm("n[08-10,3],g1", "2(x3),1")), "n08:2,n09:2,n10:2,n3:1,g1:1");
  EXPECT_EQ(for_mpirun(hosts_of_slurm("rack1-a", "4")), "rack1-a:4");
  const auto refused = [](const char* nodes, const char* tasks) {
    return message_of<ConfigError>([&] { hosts_of_slurm(nodes, tasks); });
  };
  EXPECT_THAT(refused("n[1-", "1"), HasSubstr("cannot read \"n[1-\""));
  EXPECT_THAT(refused("n[3-1]", "1"), HasSubstr("write a host file"));
  EXPECT_THAT(refused("n[1-2]", "2(x"), HasSubstr("SLURM_TASKS_PER_NODE"));
  EXPECT_THAT(refused("n1", ""), HasSubstr("SLURM_TASKS_PER_NODE"));
}

}  // namespace
}  // namespace nought::hostfile_test
