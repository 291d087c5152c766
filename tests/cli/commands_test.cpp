// The program as a new user meets it.
#include "nought/cli/commands.h"

#include "support/known_paths.h"
#include "support/run_program.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace nought::commands_test {
namespace {

using test::Ended;
using test::run_program;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

Ended run_nought(const std::string& arguments) { return run_program(test::known_path("nought") + " " + arguments); }

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
  EXPECT_THAT(ended.out, MatchesRegex("nought " NOUGHT_EXPECTED_VERSION " \\((unknown|[0-9a-f]+\\+?)\\)\n"));
  EXPECT_EQ(run_nought("info").out.substr(0, ended.out.size()), ended.out);
}

TEST(Commands, no_command_is_a_usage_error) { expect_usage_error("", "no command given; see `nought --help`"); }

TEST(Commands, an_unknown_command_names_the_nearest) {
  expect_usage_error("inof", "unknown command inof (did you mean \"info\"?)");
  expect_usage_error("inof --json", "unknown command inof (did you mean \"info\"?)");
  expect_usage_error("photosynthesize", "unknown command photosynthesize; see `nought --help`");
  expect_usage_error("finetune", "unknown command finetune (did you mean \"init finetune\"?)");
  expect_usage_error("sft", "unknown command sft (did you mean \"init finetune\"?)");
  expect_usage_error("show", "unknown command show (did you mean \"info\"?)");
}

TEST(Commands, an_unknown_option_names_the_nearest) {
  expect_usage_error("info --jsno", "unknown option --jsno (did you mean \"--json\"?); see `nought info --help`");
  expect_usage_error("info --jsno=yes", "unknown option --jsno (did you mean \"--json\"?)");
  expect_usage_error("--versoin", "unknown option --versoin (did you mean \"--version\"?); see `nought --help`");
}

TEST(Commands, help_shows_all_commands_or_one) {
  EXPECT_EQ(run_nought("help").out, run_nought("--help").out);
  EXPECT_EQ(run_nought("help train").out, run_nought("train --help").out);
  EXPECT_EQ(run_nought("help bench step").out, run_nought("bench step --help").out);
  EXPECT_EQ(run_nought("help init finetune").out, run_nought("init --help").out);
  const Ended unknown = run_nought("help trian");
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("unknown command trian (did you mean \"train\"?)"));
  EXPECT_THAT(run_nought("help bench stpe").err, HasSubstr("unknown command stpe (did you mean \"step\"?)"));
  expect_usage_error("bench stpe --help", "unknown command bench stpe (did you mean \"step\"?)");
  expect_usage_error("trian --help", "unknown command trian (did you mean \"train\"?)");
}

TEST(Commands, a_word_may_be_called_like_a_command) {
  for (const char* word : {"train", "info", "plan"}) {
    const Ended ended = run_nought(std::string("config ") + word);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_THAT(ended.out, HasSubstr(word));
  }
}

TEST(Commands, a_word_that_no_key_has_leads_to_the_nearest) {
  EXPECT_THAT(run_nought("config wamup_steps").err,
              HasSubstr("no key contains \"wamup_steps\" (did you mean \"warmup_steps\"?)"));
}

TEST(Commands, a_number_that_is_none_is_named) {
  expect_usage_error("train run.json --ranks two", "--ranks: expected a number, found \"two\"");
}

TEST(Commands, an_argument_too_many_is_named) { expect_usage_error("info out now", "unexpected argument now"); }

TEST(Info, shows_build_and_machine) {
  const Ended ended = run_nought("info");
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  for (const char* part : {"nought " NOUGHT_EXPECTED_VERSION " (", "compiler", "build type", "CPU", "instructions",
                           "Highway target", "peak in f32", "peak in bf16", "cores", "threads", "memory", "Open MPI v",
                           "mpirun", "GPU", "CUDA driver", "cuBLASLt", "cuDNN", "NCCL", "self thread mpi"})
    EXPECT_THAT(ended.out, HasSubstr(part));
  EXPECT_EQ(ended.err, "");
}

TEST(Info, json_is_one_object_with_consistent_numbers) {
  const nlohmann::json info = nlohmann::json::parse(run_nought("info --json").out);
  EXPECT_EQ(info.at("format"), "nought-info-1");
  EXPECT_EQ("nought " + info.at("version").get<std::string>() + "\n", run_nought("--version").out);
  EXPECT_GT(info.at("memory").at("available_bytes"), 0);
  EXPECT_GE(info.at("memory").at("total_bytes"), info.at("memory").at("available_bytes"));
  EXPECT_GE(info.at("cores").at("usable"), 1);
  EXPECT_GE(info.at("cores").at("machine"), info.at("cores").at("usable"));
  EXPECT_GE(info.at("threads_per_rank"), 1);
  EXPECT_EQ(info.at("backends").at("communicators"), (nlohmann::json{"self", "thread", "mpi"}));
  EXPECT_EQ(info.at("cuda").at("libraries").size(), 4);
  for (const auto& library : info.at("cuda").at("libraries"))
    EXPECT_NE(library.contains("version"), library.contains("missing")) << library;
  EXPECT_EQ(info.at("cuda").at("devices").empty(), !info.at("cuda").at("no_devices").get<std::string>().empty());
}

TEST(Info, threads_are_what_the_user_asked_for) {
  const Ended ended = run_program("env OMP_NUM_THREADS=3 " + test::known_path("nought") + " info --json");
  EXPECT_EQ(nlohmann::json::parse(ended.out).at("threads_per_rank"), 3);
}

TEST(Info, says_which_instructions_are_used_as_the_user_asked) {
  const auto info = [](const std::string& wish) {
    return run_program("env NOUGHT_ISA=" + wish + " " + test::known_path("nought") + " info --json");
  };
  const auto cpu = [&](const std::string& wish) { return nlohmann::json::parse(info(wish).out).at("cpu"); };
  const nlohmann::json best = cpu("amx"), small = cpu("avx2"), twin = cpu("amx_emulated");
  EXPECT_EQ(best.at("isa"), best.at("fastest_isa"));
  EXPECT_EQ(small.at("isa"), best.at("best_isa") == "baseline" ? "baseline" : "avx2");
  EXPECT_EQ(small.at("peak").at("bf16").at("name"), small.at("peak").at("f32").at("name"));
  EXPECT_GT(best.at("peak").at("f32").at("flops"), 1e8);
  EXPECT_EQ(small.at("bf16_products"), "fp32 multiply-adds");
  const bool has_units = best.at("best_isa") == "amx" || best.at("best_isa") == "avx512_bf16";
  EXPECT_EQ(twin.at("isa"), has_units ? nlohmann::json("amx_emulated") : best.at("isa"));
  EXPECT_THAT(run_program("env NOUGHT_ISA=avx2 " + test::known_path("nought") + " info").out,
              HasSubstr("instructions   "));
  const Ended wrong = info("quick");
  EXPECT_NE(wrong.exit_code, 0);
  EXPECT_THAT(wrong.err, HasSubstr("the environment variable NOUGHT_ISA is \"quick\": use avx2, avx512"));
}

}  // namespace
}  // namespace nought::commands_test
