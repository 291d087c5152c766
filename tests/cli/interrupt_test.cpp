// A run that a signal stops, from the outside: what it says, what it leaves, and how every command and the next start
// go on from it.
#include "support/known_paths.h"
#include "support/run_file.h"
#include "support/run_program.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/cli/stop_signals.h"

namespace nought::interrupt_test {
namespace {

namespace fs = std::filesystem;
using test::Ended;
using test::run_program;
using test::TempFolder;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// A run of `steps` steps in the folder; the command that trains it.
std::string train(const TempFolder& folder, int64_t steps) {
  return fmt::format("{} train {}", test::known_path("nought"), test::write_small_run(folder, steps).string());
}

/// Starts the command, signals it when it has made a step, and waits for its end.
Ended stopped(const TempFolder& folder, const std::string& command, const std::string& signal) {
  return run_program(
      fmt::format("bash -c ': >$0/log; {0} >$0/log & pid=$!; until grep -q ^step $0/log; do kill -0 $pid || "
                  "break; sleep 0.05; done; kill -{1} $pid; wait $pid; code=$?; cat $0/log; exit $code' {2}",
                  command, signal, folder.path().string()));
}

int64_t only_step_in(const fs::path& output) {
  std::vector<int64_t> steps;
  for (const auto& entry : fs::directory_iterator(output))
    if (const std::string name = entry.path().filename().string(); name.starts_with("checkpoint-"))
      steps.push_back(std::stoll(name.substr(11)));
  EXPECT_EQ(steps.size(), 1u);
  return steps.empty() ? -1 : steps[0];
}

TEST(Interrupt, a_run_saves_says_so_and_goes_on) {
  for (const auto& [ranks, signal, code] : {std::tuple(1, "TERM", 143), std::tuple(2, "USR1", 138)}) {
    SCOPED_TRACE(fmt::format("{} ranks", ranks));
    const TempFolder folder;
    const Ended first = stopped(folder, train(folder, 1'000'000) + fmt::format(" --ranks {}", ranks), signal);
    EXPECT_EQ(first.exit_code, code) << first.err;
    EXPECT_EQ(first.err, kStopWord);
    const int64_t step = only_step_in(folder / "out");
    EXPECT_THAT(first.out, HasSubstr(fmt::format(
                               "\ninterrupted after step {}; saved {}/out/checkpoint-{}; continue with --resume\n",
                               step, folder.path().string(), step)));
    EXPECT_FALSE(fs::exists(folder / "out/model.safetensors"));
    const Ended rest = run_program(train(folder, step + 2) + " --resume");
    EXPECT_EQ(rest.exit_code, 0) << rest.err;
    EXPECT_THAT(rest.out, AllOf(HasSubstr(fmt::format("resume  after step {}\n", step)), HasSubstr("trained 2 steps")));
    EXPECT_TRUE(fs::exists(folder / "out/model.safetensors"));
  }
}

TEST(Interrupt, every_command_takes_the_newest_weights_and_says_which) {
  const TempFolder folder;
  const std::string out = (folder / "out").string();
  ASSERT_EQ(run_program(train(folder, 2)).exit_code, 0);
  const Ended done = run_program(fmt::format("{} info {}", test::known_path("nought"), out));
  EXPECT_THAT(done.out, AllOf(HasSubstr("weights " + out), HasSubstr("exported after step 2")));
  ASSERT_EQ(stopped(folder, train(folder, 1'000'000) + " --resume", "TERM").exit_code, 143);
  int64_t step = 0;
  for (const auto& entry : fs::directory_iterator(out))
    if (const std::string name = entry.path().filename().string(); name.starts_with("checkpoint-"))
      step = std::max(step, static_cast<int64_t>(std::stoll(name.substr(11))));
  ASSERT_GT(step, 2);
  const std::string choice =
      fmt::format("{0}/checkpoint-{1}, newer than the weights that {0} exported after step 2", out, step);
  const std::string text = (folder / "text.txt").string();
  for (const std::string& arguments :
       {"generate " + out + " --prompt line --max-new-tokens 2", "eval " + out + " --data " + text + " --seq-length 32",
        "convert " + out + " " + (folder / "converted").string()}) {
    const Ended ended = run_program(test::known_path("nought") + " " + arguments);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("[model: " + choice + "]\n")) << arguments;
  }
  const Ended info = run_program(fmt::format("{} info {}", test::known_path("nought"), out));
  for (const std::string& fact :
       {fmt::format("checkpoint {}/checkpoint-{}\n", out, step), choice, fmt::format("{} of 1000000, epoch ", step),
        std::string("1 rank, ZeRO stage 0"), std::string("exp_avg, exp_avg_sq, master"),
        std::string("2 sequences of 32 tokens"), std::string("by nought " NOUGHT_EXPECTED_VERSION),
        std::string("nought-checkpoint-3"), fmt::format("of steps 2, {}\n", step)})
    EXPECT_THAT(info.out, HasSubstr(fact));
  const Ended json = run_program(fmt::format("{} info {}/checkpoint-2 --json", test::known_path("nought"), out));
  const nlohmann::json facts = nlohmann::json::parse(json.out);
  EXPECT_EQ(facts.at("format"), "nought-model-info-1");
  EXPECT_EQ(facts.at("step"), 2);
  EXPECT_EQ(facts.at("tokens"), 2 * 2 * 32);
  EXPECT_EQ(facts.at("optimizer"), "adamw_torch");
  EXPECT_THAT(run_program(fmt::format("{} info {}", test::known_path("nought"), text)).err, HasSubstr("found a file"));
}

TEST(Interrupt, resume_takes_a_step_a_path_or_nothing) {
  const TempFolder folder;
  const std::string run = train(folder, 4) + " --set training.save_steps=2";
  ASSERT_EQ(run_program(run).exit_code, 0);
  const std::string other = (folder / "other").string(), checkpoint = (folder / "out/checkpoint-2").string();
  const Ended elsewhere = run_program(run + " --resume " + checkpoint + " --set training.output_dir=" + other);
  EXPECT_EQ(elsewhere.exit_code, 0) << elsewhere.err;
  EXPECT_THAT(elsewhere.out, AllOf(HasSubstr("from " + checkpoint), HasSubstr("trained 2 steps")));
  const Ended refused = run_program(run + " --resume 2");
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("out/checkpoint-4 would be none of the run that continues"));
  EXPECT_THAT(run_program(run + " --resume 2 --overwrite --ranks 2").out,
              AllOf(HasSubstr("resume  after step 2"), HasSubstr("trained 2 steps")));
  EXPECT_THAT(run_program(run + " --rewind 2").out,
              AllOf(HasSubstr("checkpoint-4 behind step 2 lies in "), HasSubstr("trained 2 steps")));
  EXPECT_TRUE(fs::exists(folder / "out/rewound-1/checkpoint-4/manifest.json"));
  for (const char* wrong :
       {"--rewind", "--rewind -2", "--rewind two", "--rewind 2 --overwrite", "--rewind 2 --resume"}) {
    const Ended ended = run_program(run + " " + wrong);
    EXPECT_EQ(ended.exit_code, 2) << wrong;
    EXPECT_EQ(ended.error_lines(), 1) << wrong << ended.err;
  }
  // The file may stand behind the option.
  const std::string file = (folder / "run.json").string();
  const Ended behind =
      run_program(fmt::format("{} train --resume {} --set training.max_steps=5", test::known_path("nought"), file));
  EXPECT_EQ(behind.exit_code, 0) << behind.err;
  EXPECT_THAT(behind.out, HasSubstr("resume  after step 4"));
  EXPECT_EQ(run_program(test::known_path("nought") + " train --resume").exit_code, 2) << "RUN.json is missing";
}

}  // namespace
}  // namespace nought::interrupt_test
