#include "nought/config/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::command_line_test {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> words_of_last(const char* script) {
  std::vector<std::string> words;
  const std::vector<ShellCommand> commands = read_commands(script);
  for (const ShellWord& word : commands.at(commands.size() - 1)) words.push_back(word.text);
  return words;
}

TEST(CommandLine, words_have_quotes_and_go_on_over_lines) {
  EXPECT_THAT(words_of_last("a 'b c' \"d # e\" f\\ g \\\n  --h=1 # a comment\n"),
              ElementsAre("a", "b c", "d # e", "f g", "--h=1"));
  EXPECT_THAT(words_of_last("a \"\" b\r\n"), ElementsAre("a", "", "b"));
  EXPECT_THAT(words_of_last("a 'not closed"), ElementsAre("a", "not closed"));
}

TEST(CommandLine, a_word_has_the_line_on_which_it_was_written) {
  const auto commands = read_commands("OPTIONS=\"--x 1 \\\n--y 2\"\n\nrun \\\n  $OPTIONS\n");
  ASSERT_EQ(commands.size(), 1U);
  ASSERT_EQ(commands[0].size(), 5U);
  EXPECT_EQ(commands[0][0].line, 4U);
  EXPECT_EQ(commands[0][1].line, 1U);
  EXPECT_EQ(commands[0][3].text, "--y");
  EXPECT_EQ(commands[0][3].line, 2U);
}

TEST(CommandLine, variables_are_followed_with_defaults_and_arrays) {
  EXPECT_THAT(words_of_last("A=1; export B=\"2 3\"\nrun $A \"$B\" $B ${C:-4} ${C} \"${A}5\""),
              ElementsAre("run", "1", "2 3", "2", "3", "4", "15"));
  EXPECT_THAT(words_of_last("ARGS=(\n  --a 'b c'  # why\n  --d\n)\nARGS+=(--e)\nrun \"${ARGS[@]}\""),
              ElementsAre("run", "--a", "b", "c", "--d", "--e"));
  EXPECT_THAT(words_of_last("O=\"--a\"\nO=\"$O\n --b\"\neval \"run $O\" $O"),
              ElementsAre("eval", "run --a\n --b", "--a", "--b"));
}

TEST(CommandLine, arguments_of_the_script_are_empty_and_an_if_gives_defaults) {
  const char* script = "OUT=$1\nSTAGE=2\nif [ \"$OUT\" == \"\" ]; then\n  OUT=out\n  STAGE=3\nfi\nrun $OUT $STAGE $2";
  EXPECT_THAT(words_of_last(script), ElementsAre("run", "out", "2"));
}

TEST(CommandLine, outputs_go_nowhere_and_pipes_end_a_command) {
  EXPECT_THAT(words_of_last("run a 2>&1 > log b &> all"), ElementsAre("run", "a", "b"));
  const auto commands = read_commands("x && run a | tee log");
  ASSERT_EQ(commands.size(), 3U);
  EXPECT_EQ(commands[1].size(), 2U);
}

TEST(CommandLine, what_a_command_prints_is_not_known) {
  const auto commands =
      read_commands("P=$(shuf -n 1 | sort (a))\nfor i in 1 2; do\nrun --p $P --i $i --j `date` --k 1\ndone");
  const ShellCommand& run = commands.at(0);
  ASSERT_EQ(run.size(), 9U);
  EXPECT_TRUE(run[2].computed);
  EXPECT_TRUE(run[4].computed);
  EXPECT_TRUE(run[6].computed);
  EXPECT_FALSE(run[8].computed);
}

}  // namespace
}  // namespace nought::command_line_test
