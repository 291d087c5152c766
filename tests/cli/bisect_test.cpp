// nought bisect finds the step at which two runs became different, also between their checkpoints.
#include "support/known_paths.h"
#include "support/run_file.h"
#include "support/run_program.h"
#include "support/size.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/cli/commands.h"
#include "nought/cli/run_replay.h"

namespace nought::bisect_test {
namespace {

using nlohmann::json;
using test::Ended;
using test::TempFolder;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

Ended nought(const std::string& arguments) { return test::run_program(test::known_path("nought") + " " + arguments); }

NOUGHT_FILE_SIZE(medium);

class Bisect : public testing::Test {
 public:
  TempFolder folder;
  std::string first = (folder / "out").string(), other = (folder / "other").string();
};

TEST_F(Bisect, finds_no_difference_between_runs_that_are_equal) {
  const std::string run = "train " + test::write_small_run(folder, 12, 6).string() + " --set training.output_dir=";
  ASSERT_EQ(nought(run + first).exit_code, 0);
  ASSERT_EQ(nought(run + other + " --set training.logging_steps=3").exit_code, 0);
  const Ended ended = nought("bisect " + first + " " + other);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.out, "compared  the losses of 12 steps and 2 checkpoints\nresult    no difference\n");
}

TEST_F(Bisect, narrows_a_difference_down_by_replays_and_leaves_nothing) {
  const std::string run = "train " + test::write_small_run(folder, 12, 6).string() + " --set training.output_dir=";
  ASSERT_EQ(nought(run + first).exit_code, 0);
  // Decay of weights changes the weights after the first step; losses begin to differ in the second at the latest.
  ASSERT_EQ(nought(run + other + " --set training.weight_decay=0.5").exit_code, 0);
  const Ended whole = nought("bisect " + first + " " + other + " --json --no-replay");
  EXPECT_EQ(whole.exit_code, 1);
  const json told = json::parse(whole.out);
  EXPECT_EQ(told.at("equal_after"), 0);
  EXPECT_EQ(told.at("first_different"), 2);
  EXPECT_EQ(told.at("exact"), false);
  EXPECT_EQ(told.at("not_narrowed_because"), "--no-replay");
  const std::string replays = (folder / "replays").string();
  const Ended ended = nought("bisect " + first + " " + other + " --folder " + replays);
  EXPECT_EQ(ended.exit_code, 1) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("replayed 2 steps\nresult    step 1 is the first that differs: master/"));
  EXPECT_TRUE(std::filesystem::is_empty(replays));
}

TEST_F(Bisect, says_why_a_run_cannot_be_replayed) {
  const std::string run = "train " + test::write_small_run(folder, 4, 2).string() + " --set training.output_dir=";
  ASSERT_EQ(nought(run + first).exit_code, 0);
  ASSERT_EQ(nought(run + other + " --set training.weight_decay=0.5").exit_code, 0);
  std::filesystem::remove(folder / "text.txt");
  const Ended ended = nought("bisect " + first + " " + other);
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.out, AllOf(HasSubstr("not known to be equal after any step, and step 2 differs: loss "),
                               HasSubstr("not narrowed down: the replay of "), HasSubstr("text.txt")));
}

TEST_F(Bisect, refuses_bad_input_in_one_line) {
  const auto expect = [](const std::string& arguments, const std::string& text) {
    const Ended ended = nought("bisect " + arguments);
    EXPECT_NE(ended.exit_code, 0) << arguments;
    EXPECT_EQ(ended.error_lines(), 1) << ended.err;
    EXPECT_THAT(ended.err, AllOf(StartsWith("nought: error: "), HasSubstr(text)));
  };
  expect("/nowhere /nowhere2", "/nowhere");
  expect(folder.path().string(), "two runs, got 1");
}

}  // namespace
}  // namespace nought::bisect_test
