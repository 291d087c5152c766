// The program as a new user meets it.
#include "nought/cli/commands.h"

#include "support/run_program.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace nought {
namespace {

using test::Ended;
using test::run_program;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Ended run_nought(const std::string& arguments) { return run_program(std::string(NOUGHT_PROGRAM) + " " + arguments); }

void expect_usage_error(const std::string& arguments, const std::string& text) {
  const Ended ended = run_nought(arguments);
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_EQ(ended.out, "");
  EXPECT_EQ(ended.error_lines(), 1) << ended.err;
  EXPECT_THAT(ended.err, StartsWith("nought: error: "));
  EXPECT_THAT(ended.err, HasSubstr(text));
}

TEST(Commands, every_command_has_help_with_examples_and_is_listed) {
  CLI::App app("", "nought");
  Invocation invocation;
  add_commands(app, invocation);
  const std::string overview = run_nought("--help").out;
  EXPECT_THAT(overview, HasSubstr("Examples:"));
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    const Ended help = run_nought(command->get_name() + " --help");
    EXPECT_EQ(help.exit_code, 0) << command->get_name();
    EXPECT_THAT(help.out, HasSubstr("Examples:\n  nought " + command->get_name()));
    EXPECT_THAT(help.out, HasSubstr(command->get_description()));
    EXPECT_THAT(overview, HasSubstr(command->get_name()));
    EXPECT_EQ(help.err, "");
  }
}

TEST(Commands, version_is_the_projects) {
  const Ended ended = run_nought("--version");
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_EQ(ended.out, "nought " NOUGHT_EXPECTED_VERSION "\n");
}

TEST(Commands, no_command_is_a_usage_error) { expect_usage_error("", "no command given; see `nought --help`"); }

TEST(Commands, an_unknown_command_names_the_nearest) {
  expect_usage_error("inof", "unknown command inof (did you mean \"info\"?)");
  expect_usage_error("inof --json", "unknown command inof (did you mean \"info\"?)");
  expect_usage_error("photosynthesize", "unknown command photosynthesize; see `nought --help`");
}

TEST(Commands, an_unknown_option_names_the_nearest) {
  expect_usage_error("info --jsno", "unknown option --jsno (did you mean \"--json\"?); see `nought info --help`");
  expect_usage_error("info --jsno=yes", "unknown option --jsno (did you mean \"--json\"?)");
  expect_usage_error("--versoin", "unknown option --versoin (did you mean \"--version\"?); see `nought --help`");
}

TEST(Commands, an_argument_too_many_is_named) { expect_usage_error("info now", "unexpected argument now"); }

TEST(Info, shows_build_and_machine) {
  const Ended ended = run_nought("info");
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  for (const char* part : {"nought " NOUGHT_EXPECTED_VERSION "\n", "compiler", "build type", "CPU", "Highway target",
                           "oneDNN", "cores", "threads", "memory", "Open MPI v", "mpirun", "self thread mpi"})
    EXPECT_THAT(ended.out, HasSubstr(part));
  EXPECT_EQ(ended.err, "");
}

TEST(Info, json_is_one_object_with_consistent_numbers) {
  const nlohmann::json info = nlohmann::json::parse(run_nought("info --json").out);
  EXPECT_EQ(info.at("version"), NOUGHT_EXPECTED_VERSION);
  EXPECT_GT(info.at("memory").at("available_bytes"), 0);
  EXPECT_GE(info.at("memory").at("total_bytes"), info.at("memory").at("available_bytes"));
  EXPECT_GE(info.at("cores").at("usable"), 1);
  EXPECT_GE(info.at("cores").at("machine"), info.at("cores").at("usable"));
  EXPECT_GE(info.at("threads_per_rank"), 1);
  EXPECT_EQ(info.at("backends").at("communicators"), (nlohmann::json{"self", "thread", "mpi"}));
}

TEST(Info, threads_are_what_the_user_asked_for) {
  const Ended ended = run_program("env OMP_NUM_THREADS=3 " NOUGHT_PROGRAM " info --json");
  EXPECT_EQ(nlohmann::json::parse(ended.out).at("threads_per_rank"), 3);
}

TEST(Info, says_who_multiplies_as_the_user_asked) {
  const auto info = [](const std::string& wish) {
    return run_program("env NOUGHT_AMX=" + wish + " " NOUGHT_PROGRAM " info --json");
  };
  const std::string left = nlohmann::json::parse(info("onednn").out).at("cpu").at("bf16_products");
  EXPECT_EQ(left.find("AMX"), std::string::npos) << left;
  const std::string twin = nlohmann::json::parse(info("emulated").out).at("cpu").at("bf16_products");
  EXPECT_TRUE(twin == left || twin == "own AMX kernels, on emulated tiles") << twin;  // as the CPU can or not
  const Ended wrong = info("quick");
  EXPECT_NE(wrong.exit_code, 0);
  EXPECT_THAT(wrong.err, HasSubstr("the environment variable NOUGHT_AMX is \"quick\": use \"onednn\""));
}

}  // namespace
}  // namespace nought
