// What hosts say of themselves is compared with what a run needs, by a fake agent whose hosts are this machine.
#include "nought/cli/host_check.h"

#include "support/environment.h"
#include "support/known_paths.h"
#include "support/message_of.h"
#include "support/size.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "nought/base/error.h"
#include "nought/base/host.h"
#include "nought/cli/host_facts.h"
#include "nought/cli/launch_limits.h"
#include "nought/cli/remote_calls.h"
#include "nought/cli/version.h"

namespace nought::host_check_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// An agent that runs commands on this machine, by a script that sees the host's name as $1 and the command as $2.
class Agent {
 public:
  explicit Agent(const std::string& body)
      : path_(folder_.write("agent", "#!/bin/sh\n" + body).string()), set_{{"OMPI_MCA_plm_rsh_agent", path_}} {
    chmod(path_.c_str(), 0700);
  }

 private:
  test::TempFolder folder_;
  std::string path_;
  test::Environment set_;
};

/// The only host of a check.
HostReport check_one(const RunNeeds& needs, const std::string& program = test::known_path("nought")) {
  return check_hosts({{"h2", 2, 1}}, needs, program).at(0);
}

NOUGHT_FILE_SIZE(medium);

TEST(RemoteCalls, bring_what_all_hosts_say_at_once) {
  const Agent agent("[ $1 = slow ] && sleep 30\neval \"$2\"");
  const std::vector<RemoteAnswer> answers =
      call_hosts({{"a", "echo " + shell_word("it's $HOME")}, {"slow", "true"}, {"b", "echo no >&2; exit 3"}},
                 std::chrono::milliseconds(300));
  ASSERT_EQ(answers.size(), 3);
  EXPECT_EQ(answers[0].out, "it's $HOME\n");
  EXPECT_EQ(answers[0].code, 0);
  EXPECT_GE(answers[0].answered, answers[0].asked);
  EXPECT_EQ(answers[1].code, -1);
  EXPECT_EQ(answers[2].code, 3);
  EXPECT_EQ(answers[2].err, "no\n");
  EXPECT_TRUE(is_this_host(host_name()));
  EXPECT_FALSE(is_this_host("h2"));
}

TEST(HostFacts, are_what_this_host_has) {
  const test::TempFolder folder;
  folder.write("n", "n");
  const HostFacts facts = facts_of_this_host({.files = {(folder / "n").string(), folder.path(), "/nowhere"},
                                              .folder = folder.path(),
                                              .nonce = "n",
                                              .host = "h2"});
  EXPECT_EQ(facts.version, version());
  EXPECT_GT(facts.memory, 0);
  EXPECT_THAT(facts.sizes, ElementsAre(1, 1, -1));
  EXPECT_TRUE(facts.reads);
  EXPECT_EQ(test::read_bytes(folder / "n-h2"), "n");
  EXPECT_EQ(HostFacts::from(Json(facts.json())).json(), facts.json());
  EXPECT_THAT(test::message_of<IoError>([] { HostFacts::from(Json{{"version", 3}}); }), HasSubstr("answer of a host"));
  const HostQuestion question{.files = {"a"}, .folder = "b", .nonce = "c", .host = "d", .ranks = 5};
  EXPECT_EQ(HostQuestion::from(Json(question.json())).json(), question.json());
}

TEST(HostCheck, finds_nothing_wrong_with_a_host_like_this_one) {
  const Agent agent("eval \"$2\"");
  const test::TempFolder folder;
  const std::string output = (folder / "a/out").string();
  const HostReport report = check_one(
      {.files = {folder.write("text.txt", "abc").string()}, .output_dir = output, .rank_bytes = 1 << 20, .ranks = 1});
  EXPECT_THAT(report.problems, IsEmpty());
  ASSERT_TRUE(report.facts);
  EXPECT_EQ(report.ranks, 1);
  EXPECT_EQ(report.clock, 0);
  EXPECT_FALSE(std::filesystem::exists(folder / "a")) << "what was made for the check has to go";
}

TEST(HostCheck, names_what_is_wrong_with_the_way_out) {
  const test::TempFolder folder;
  const RunNeeds needs{.output_dir = (folder / "out").string(), .until_seen = std::chrono::milliseconds(100)};
  const auto problems = [&](const std::string& agent, const RunNeeds& of) {
    const Agent set(agent);
    return describe_problems({check_one(of)});
  };
  EXPECT_THAT(problems("eval \"$2\" | sed 's/\"version\":\"[^\"]*\"/\"version\":\"0.0.1\"/'", needs),
              AllOf(HasSubstr("host h2: it has nought 0.0.1, and this machine"), HasSubstr("install the same build")));
  EXPECT_THAT(problems("eval \"$2\" | sed 's/\"time\":1/\"time\":2/'", needs), HasSubstr("s ahead of this machine's"));
  EXPECT_THAT(problems("eval \"$2\" | sed 's/\"memory_bytes\":[0-9]*/\"memory_bytes\":1024/'", {.rank_bytes = 1 << 20}),
              HasSubstr("1.00 KiB are free of its memory, and 2 ranks take 2.00 MiB"));
  EXPECT_THAT(problems("eval \"$2\" | sed 's/\"sizes\":.[0-9]*/\"sizes\":[-1/'",
                       {.files = {folder.write("text.txt", "abc").string()}}),
              HasSubstr("text.txt is not there"));
  EXPECT_THAT(problems("eval \"$2\" | sed 's/\"sizes\":.[0-9]*/\"sizes\":[7/'",
                       {.files = {folder.write("text.txt", "abc").string()}}),
              HasSubstr("text.txt has another size than here"));
  EXPECT_THAT(problems("eval \"$2\" | sed 's/\"reads\":true/\"reads\":false/'", needs),
              HasSubstr("what is written here is not seen there: put it on a file system that all hosts share"));
  EXPECT_THAT(problems("(eval \"$2\"); rm -f " + folder.path().string() + "/out/.doctor-*/*-h2", needs),
              HasSubstr("what it writes is not seen here"));
}

TEST(HostCheck, says_why_a_host_gives_no_answer) {
  {
    const Agent agent("echo 'connection refused' >&2; exit 255");
    EXPECT_THAT(describe_problems({check_one({})}),
                AllOf(HasSubstr("it cannot be asked (\"connection refused\"), exit code 255"), HasSubstr("h2 true`")));
  }
  const Agent agent("eval \"$2\"");
  EXPECT_THAT(describe_problems({check_one({}, "/nowhere/nought")}), HasSubstr("it has no program /nowhere/nought"));
  EXPECT_THAT(test::message_of<IoError>([] { check_one({.output_dir = "/proc/out"}); }),
              HasSubstr("cannot be written"));
}

TEST(HostCheck, fills_slots_in_their_order) {
  const std::vector<Host> hosts{{"a", 2, 1}, {"b", 4, 2}, {"c", 1, 3}};
  EXPECT_THAT(ranks_of_hosts(hosts, 0), ElementsAre(2, 4, 1));
  EXPECT_THAT(ranks_of_hosts(hosts, 3), ElementsAre(2, 1, 0));
}

}  // namespace
}  // namespace nought::host_check_test
