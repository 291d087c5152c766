#include "nought/cli/command_table.h"

#include <regex>
#include <set>

#include "support/known_paths.h"
#include "support/run_program.h"
#include "support/size.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/text.h"
#include "nought/cli/help_formatter.h"
#include "nought/config/config_reference.h"

namespace nought::command_table_test {
namespace {

using test::Ended;
using test::run_program;
using test::TempFolder;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<CommandEntry> table() {
  CLI::App app("Trains.", "nought");
  Invocation invocation;
  app.set_version_flag("--version", "0");
  add_commands(app, invocation);
  return command_table(app);
}

std::string run_nought(const std::string& arguments) {
  const Ended ended = run_program(test::known_path("nought") + " " + arguments);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  return ended.out;
}

/// The options that the lines of a --help begin with.
std::set<std::string> options_in_help(const std::string& help) {
  std::set<std::string> options;
  const std::regex line("(?:^|\\n)  (-[^\\s,]+)(?:,(--[^\\s,]+))?");
  for (std::sregex_iterator at(help.begin(), help.end(), line), end; at != end; ++at)
    for (const int group : {1, 2})
      if ((*at)[group].matched) options.insert((*at)[group]);
  return options;
}

NOUGHT_SIZE(small);
TEST(CommandTable, lists_the_options_of_every_help_and_no_other) {
  CLI::App app("Trains.", "nought");
  Invocation invocation;
  app.formatter(std::make_shared<HelpFormatter>(0));
  add_commands(app, invocation);
  for (const CommandEntry& command : command_table(app)) {
    const CLI::App* at = &app;
    for (const std::string& word : split(command.name, ' '))
      if (!word.empty()) at = at->get_subcommand(word);
    std::set<std::string> names;
    for (const OptionEntry& option : command.options)
      if (!option.is_argument) names.insert(option.names.begin(), option.names.end());
    EXPECT_EQ(names, options_in_help(at->help())) << command.name;
    EXPECT_THAT(at->help(), HasSubstr(command.help));
  }
}

NOUGHT_SIZE(small);
TEST(CommandTable, values_of_a_key_are_those_that_its_type_lists) {
  EXPECT_THAT(values_of_type("one of no, steps or \"auto\""), ElementsAre("no", "steps"));
  EXPECT_THAT(values_of_type("true or false"), ElementsAre("true", "false"));
  EXPECT_TRUE(values_of_type("an integer").empty());
}

NOUGHT_SIZE(small);
TEST(CommandTable, every_page_and_script_has_every_command_option_and_key) {
  const std::vector<CommandEntry> all = table();
  const std::string scripts[] = {bash_completion(all), zsh_completion(all), fish_completion(all)};
  const std::string keys = man_page_of_run_file();
  for (const CommandEntry& command : all) {
    const std::string page = man_page(command, all);
    for (const OptionEntry& option : command.options)
      for (const std::string& name : option.names) {
        EXPECT_THAT(page, HasSubstr(std::regex_replace(name, std::regex("-"), "\\-")));
        if (!option.is_argument) {
          EXPECT_TRUE(scripts[0].find(name) != std::string::npos && scripts[1].find(name) != std::string::npos) << name;
        }
      }
    for (const std::string& script : scripts)
      EXPECT_THAT(script, HasSubstr(command.name.substr(command.name.rfind(' ') + 1)));
  }
  for (const ConfigEntry& entry : config_reference()) {
    EXPECT_THAT(keys, HasSubstr("\\fB" + std::regex_replace(entry.path, std::regex("-"), "\\-") + "\\fR"));
    if (entry.use == KeyUse::implemented) {
      for (const std::string& script : scripts) EXPECT_TRUE(script.find(entry.path) != std::string::npos) << entry.path;
    }
  }
}

TEST(CommandTable, bash_completes_commands_options_keys_and_values) {
  const TempFolder folder;
  folder.write("nought.bash", bash_completion(table()));
  const auto complete = [&](const std::string& words) {
    const std::string script = "source " + (folder / "nought.bash").string() +
                               "; compopt() { :; }; COMP_WORDS=(nought " + words +
                               "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _nought; echo ${COMPREPLY[@]}";
    return run_program("bash -c '" + script + "'").out;
  };
  EXPECT_EQ(complete("tra"), "train trace\n");
  EXPECT_EQ(complete("train --ran"), "--ranks\n");
  EXPECT_EQ(complete("bench ste"), "step\n");
  EXPECT_EQ(complete("train --set training.max_st"), "training.max_steps=\n");
  EXPECT_EQ(complete("train --set training.eval_strategy = s"), "steps\n");
  EXPECT_EQ(complete("plan run.json --sta"), "--stage\n");
}

TEST(CommandTable, man_writes_a_page_for_every_command) {
  const TempFolder folder;
  run_nought("man --output " + folder.path().string());
  EXPECT_EQ(test::names_in(folder / "man1").size(), table().size());
  EXPECT_THAT(test::read_bytes(folder / "man1/nought-train.1"), HasSubstr("\\fB\\-\\-ranks\\fR"));
  EXPECT_THAT(test::names_in(folder / "man5"), ElementsAre("nought-run.json.5"));
}

}  // namespace
}  // namespace nought::command_table_test
