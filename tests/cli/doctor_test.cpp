// nought doctor, as a user calls it: what it prints, and how it ends.
#include "support/environment.h"
#include "support/known_paths.h"
#include "support/run_file.h"
#include "support/run_program.h"
#include "support/size.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include "nought/base/host.h"
#include "nought/cli/commands.h"

namespace nought::doctor_test {
namespace {

using nlohmann::json;
using test::Ended;
using test::TempFolder;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

Ended doctor(const std::string& arguments) {
  return test::run_program(test::known_path("nought") + " doctor " + arguments);
}

NOUGHT_FILE_SIZE(medium);

TEST(Doctor, says_in_json_what_it_found_of_this_host) {
  const TempFolder folder;
  const std::string run = test::write_small_run(folder, 2).string();
  const Ended ended = doctor(run + " --ranks 2 --json");
  ASSERT_EQ(ended.exit_code, 0) << ended.err << ended.out;
  const json found = json::parse(ended.out);
  EXPECT_EQ(found.at("good"), true);
  EXPECT_GT(found.at("rank_bytes"), 1 << 16);
  ASSERT_EQ(found.at("hosts").size(), 1);
  const json& host = found.at("hosts")[0];
  EXPECT_EQ(host.at("host"), host_name());
  EXPECT_EQ(host.at("ranks"), 2);
  EXPECT_EQ(host.at("reachable"), true);
  for (const char* key : {"version", "cpu", "isa"}) EXPECT_NE(host.at(key), "") << key;
  for (const char* key : {"cores", "memory_bytes", "shared_bytes", "open_files"}) EXPECT_GT(host.at(key), 0) << key;
  EXPECT_EQ(host.at("problems"), json::array());
  EXPECT_FALSE(host.contains("sizes")) << "what hosts tell each other is not for users";
  EXPECT_FALSE(std::filesystem::exists(folder / "out")) << "what was made for the check has to go";
}

TEST(Doctor, gives_each_host_a_line_and_ends_with_1_if_one_is_wrong) {
  const TempFolder folder;
  const std::string agent = folder.write("agent", "#!/bin/sh\necho 'no route to host' >&2; exit 255\n").string();
  chmod(agent.c_str(), 0700);
  const test::Environment set{{"OMPI_MCA_plm_rsh_agent", agent}};
  const std::string hosts = folder.write("hosts", "localhost slots=2\nh2 slots=1\n").string();
  const Ended text = doctor("--hostfile " + hosts);
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_THAT(text.out, AllOf(HasSubstr("\nlocalhost  ok     2 ranks on "), HasSubstr("\nh2         wrong  it cannot"),
                              HasSubstr("no route to host"), HasSubstr("not measured")));
  const Ended ended = doctor("--json --hostfile " + hosts);
  EXPECT_EQ(ended.exit_code, 1);
  const json found = json::parse(ended.out);
  EXPECT_EQ(found.at("good"), false);
  EXPECT_EQ(found.at("hosts")[1].at("reachable"), false);
  EXPECT_EQ(found.at("hosts")[1].at("problems").size(), 1);
}

TEST(Doctor, refuses_bad_input_in_one_line) {
  const TempFolder folder;
  const auto expect = [](const std::string& arguments, const std::string& text) {
    const Ended ended = doctor(arguments);
    EXPECT_EQ(ended.exit_code, 1) << arguments;
    EXPECT_EQ(ended.error_lines(), 1) << ended.err;
    EXPECT_THAT(ended.err, AllOf(StartsWith("nought: error: "), HasSubstr(text)));
  };
  const std::string bad = folder.write("bad", "h1 slots=abc\n").string();
  const std::string good = folder.write("good", "h1 slots=2\nh2 slots=2\n").string();
  expect("--hostfile " + bad, "bad:1: host h1: slots: expected a number from 1 to 100000, found \"abc\"");
  expect("--hostfile /nowhere/hosts", "/nowhere/hosts: there is no such file");
  expect("--hostfile " + good + " --exclude h3", "has no host \"h3\"");
  expect("--exclude h1", "--hostfile, which is not given");
  expect("/nowhere/run.json", "/nowhere/run.json");
}

}  // namespace
}  // namespace nought::doctor_test
