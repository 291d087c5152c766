// The help of every command keeps to the width of the terminal.
#include "nought/cli/help_formatter.h"

#include <sstream>

#include "support/size.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/lines.h"
#include "nought/cli/commands.h"

namespace nought::help_formatter_test {
namespace {

NOUGHT_FILE_SIZE(small);

using ::testing::HasSubstr;

/// The help of a program with every command; `command` "": its own.
std::string help_of(const std::string& command, int width) {
  CLI::App app("Trains models.", "nought");
  app.formatter(std::make_shared<HelpFormatter>(width));
  Invocation invocation;
  add_commands(app, invocation);
  return command.empty() ? app.help() : app.get_subcommand(command)->help();
}

std::vector<std::string> commands() {
  CLI::App app("", "nought");
  Invocation invocation;
  add_commands(app, invocation);
  std::vector<std::string> names{""};
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

/// All that is neither white space nor the mark of a broken line.
std::string letters_of(const std::string& text) {
  std::string letters;
  for (const char c : text)
    if (c != ' ' && c != '\n' && c != '\\') letters += c;
  return letters;
}

TEST(HelpFormatter, every_command_fits_and_says_the_same_at_any_width) {
  for (const std::string& command : commands())
    for (const int width : {80, 120}) {
      const std::string text = help_of(command, width);
      std::istringstream lines(text);
      for (std::string line; std::getline(lines, line);) EXPECT_LE(columns_of(line), width) << command << ": " << line;
      EXPECT_EQ(letters_of(text), letters_of(help_of(command, 0))) << command;
    }
}

TEST(HelpFormatter, at_40_columns_descriptions_are_narrow_and_nothing_is_cut) {
  for (const std::string& command : commands()) {
    const std::string text = help_of(command, 40);
    EXPECT_EQ(letters_of(text), letters_of(help_of(command, 0))) << command;
  }
}

TEST(HelpFormatter, an_example_that_is_broken_can_still_be_pasted) {
  CLI::App app("", "nought");
  app.formatter(std::make_shared<HelpFormatter>(40));
  app.footer("\nExamples:\n  nought train run.json --ranks 2 --set training.max_steps=5");
  EXPECT_THAT(app.help(), HasSubstr("  nought train run.json --ranks 2 \\\n      --set training.max_steps=5\n"));
}

}  // namespace
}  // namespace nought::help_formatter_test
