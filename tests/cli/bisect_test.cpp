// nought bisect finds the step at which two runs became different, also between their checkpoints.
#include <memory>

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

/// A run of 4 steps and one whose weights decay: they differ after the first step, and its loss from the second on.
class Bisect : public testing::Test {
 public:
  static void SetUpTestSuite() {
    folder = std::make_unique<TempFolder>();
    const std::string run = "train " + test::write_small_run(*folder, 4, 2).string() + " --set training.output_dir=";
    ASSERT_EQ(nought(run + at("out")).exit_code, 0);
    ASSERT_EQ(nought(run + at("other") + " --set training.weight_decay=0.5").exit_code, 0);
  }
  static void TearDownTestSuite() { folder.reset(); }
  static std::string at(const std::string& name) { return (*folder / name).string(); }
  static Ended bisect(const std::string& more) { return nought("bisect " + at("out") + " " + more); }

  static std::unique_ptr<TempFolder> folder;
};
std::unique_ptr<TempFolder> Bisect::folder;

TEST_F(Bisect, finds_no_difference_between_runs_that_are_equal) {
  std::filesystem::copy(at("out"), at("copy"), std::filesystem::copy_options::recursive);
  const Ended ended = bisect(at("copy"));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.out, "compared  the losses of 4 steps and 2 checkpoints\nresult    no difference\n");
}

TEST_F(Bisect, narrows_a_difference_down_by_replays_and_leaves_nothing) {
  const Ended whole = bisect(at("other") + " --json --no-replay");
  EXPECT_EQ(whole.exit_code, 1);
  const json told = json::parse(whole.out);
  EXPECT_EQ(told.at("equal_after"), 0);
  EXPECT_EQ(told.at("first_different"), 2);
  EXPECT_EQ(told.at("exact"), false);
  EXPECT_EQ(told.at("not_narrowed_because"), "--no-replay");
  const Ended ended = bisect(at("other") + " --folder " + at("replays"));
  EXPECT_EQ(ended.exit_code, 1) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("replayed 2 steps\nresult    step 1 is the first that differs: master/"));
  EXPECT_TRUE(std::filesystem::is_empty(at("replays")));
}

TEST_F(Bisect, says_why_a_run_cannot_be_replayed) {
  std::filesystem::rename(at("text.txt"), at("moved.txt"));
  const Ended ended = bisect(at("other"));
  std::filesystem::rename(at("moved.txt"), at("text.txt"));
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
  expect(folder->path().string(), "two runs, got 1");
}

}  // namespace
}  // namespace nought::bisect_test
