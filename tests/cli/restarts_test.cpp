// nought train --restarts: a run whose ranks are killed comes to the bits of one that nobody disturbed.
#include "nought/cli/restarts.h"

#include <chrono>
#include <csignal>
#include <map>
#include <random>
#include <thread>

#include "support/known_paths.h"
#include "support/program_runs.h"
#include "support/run_file.h"
#include "support/sweep.h"
#include "support/tagged_processes.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/checkpoint/checkpoint_folders.h"

namespace nought::restarts_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Ended;
using test::TempFolder;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

using Clock = std::chrono::steady_clock;
const std::chrono::milliseconds kLook{test::sweep(2, 20)};
constexpr std::chrono::seconds kLimit{60};

std::vector<json> lines_of(const fs::path& file) {
  std::vector<json> lines;
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);)
    if (json parsed = json::parse(line, nullptr, false); parsed.is_object()) lines.push_back(std::move(parsed));
  return lines;
}

/// The losses as text, in the order of the file.
std::vector<std::pair<int64_t, std::string>> losses_of(const fs::path& folder) {
  std::vector<std::pair<int64_t, std::string>> losses;
  for (const json& line : lines_of(folder / "metrics.jsonl"))
    if (line.contains("loss")) losses.emplace_back(line.at("step"), line.at("loss").dump());
  return losses;
}

/// A supervised run that is disturbed while it goes on.
class Supervised {
 public:
  Supervised(const TempFolder& folder, const std::string& more, const std::string& output = "out")
      : folder_(folder), output_(folder / output) {
    fs::create_directories(folder / "tmp");
    std::istringstream rest(more);
    for (std::string word; rest >> word;) words_.push_back(word);
    start();
  }
  void start() {
    std::vector<std::string> words{test::known_path("nought"), "train", (folder_ / "run.json").string(), "--set",
                                   "training.output_dir=" + output_.string()};
    words.insert(words.end(), words_.begin(), words_.end());
    if (!list_checkpoints(output_).empty()) words.emplace_back("--resume");
    supervisor_ = test::start_tagged(std::move(words), tag_, folder_.path());
  }
  ~Supervised() {
    for (const pid_t left : test::processes_with(tag_)) kill(left, SIGKILL);
    if (supervisor_ > 0) wait();
  }
  Supervised(const Supervised&) = delete;
  Supervised& operator=(const Supervised&) = delete;

  /// Waits until a step is in metrics.jsonl that is at least this one; false if the run ends first.
  bool reaches(int64_t step) {
    const auto limit = Clock::now() + kLimit;
    while (Clock::now() < limit && runs()) {
      const auto losses = losses_of(output_);
      if (!losses.empty() && losses.back().first >= step) return true;
      std::this_thread::sleep_for(kLook);
    }
    return false;
  }
  /// Kills any process of the run. If that is the supervisor, waits until all others are gone, and starts it again.
  void kill_any(std::mt19937& random) {
    const std::vector<pid_t> all = processes();
    if (all.empty()) return;
    const pid_t victim = all[random() % all.size()];
    kill(victim, SIGKILL);
    if (victim != supervisor_) return;
    wait();
    const auto limit = Clock::now() + kLimit;
    while (!processes().empty() && Clock::now() < limit) std::this_thread::sleep_for(kLook);
    EXPECT_THAT(processes(), IsEmpty()) << "these outlive the supervisor";
    if (!fs::exists(output_ / "trainer_state.json")) start();
  }
  /// Waits for the processes of a rank, and sends each a signal.
  bool signal_rank(int rank, int signal) {
    const auto limit = Clock::now() + kLimit;
    while (Clock::now() < limit && runs()) {
      const std::vector<pid_t> found = test::processes_with(tag_, fmt::format("OMPI_COMM_WORLD_RANK={}", rank));
      for (const pid_t pid : found) kill(pid, signal);
      if (!found.empty()) return true;
      std::this_thread::sleep_for(kLook);
    }
    return false;
  }
  bool runs() {
    return supervisor_ > 0 && waitid(P_PID, static_cast<id_t>(supervisor_), &info_, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info_.si_pid == 0;
  }
  void signal(int number) const { kill(supervisor_, number); }
  int wait() {
    int status = 0;
    waitpid(supervisor_, &status, 0);
    supervisor_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  std::vector<pid_t> processes() const { return test::processes_with(tag_); }
  std::string log() const { return test::read_bytes(folder_ / "log"); }
  std::vector<json> restarts() const { return lines_of(output_ / "restarts.jsonl"); }
  const fs::path& output() const { return output_; }

 private:
  const TempFolder& folder_;
  fs::path output_;
  std::vector<std::string> words_;
  std::string tag_ = fmt::format("NOUGHT_TEST_RUN={}-{}", getpid(), folder_.path().string());
  pid_t supervisor_ = -1;
  siginfo_t info_{};
};

constexpr const char* kSlowEnough = "--set data.seq_length=32 --set training.per_device_train_batch_size=8";

/// Makes the run without disturbance, in the folder "whole".
void run_whole(const TempFolder& folder, const std::string& more) {
  const Ended ended = test::run_program(
      test::train_command(folder,
                          fmt::format("{} --quiet --set training.output_dir={}", more, (folder / "whole").string())),
      /*limit=*/"900");
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
}

void expect_same_run(const fs::path& disturbed, const fs::path& whole) {
  EXPECT_EQ(losses_of(disturbed), losses_of(whole)) << "each step once, in order, to the bit";
  EXPECT_EQ(test::read_bytes(disturbed / "model.safetensors"), test::read_bytes(whole / "model.safetensors"));
}

TEST(Restarts, after_killed_ranks_come_to_the_bits_of_an_undisturbed_run) {
  const TempFolder folder;
  const int64_t steps = 40;
  test::write_small_run(folder, steps, /*save_steps=*/5);
  const std::string run = fmt::format("--ranks 2 {} --set deepspeed.zero_optimization.stage=2", kSlowEnough);
  run_whole(folder, run);

  Supervised supervised(folder, run + " --restarts 3 --restart-delay 0.05s");
  ASSERT_TRUE(supervised.reaches(12)) << supervised.log();
  ASSERT_TRUE(supervised.signal_rank(1, SIGKILL));
  ASSERT_TRUE(supervised.reaches(24)) << supervised.log();
  ASSERT_TRUE(supervised.signal_rank(0, SIGKILL));
  ASSERT_EQ(supervised.wait(), 0) << supervised.log();
  EXPECT_THAT(supervised.processes(), IsEmpty());
  expect_same_run(supervised.output(), folder / "whole");

  const std::vector<json> restarts = supervised.restarts();
  ASSERT_EQ(restarts.size(), 2) << supervised.log();
  for (const json& each : restarts) {
    EXPECT_THAT(each.at("cause"), HasSubstr("signal 9 (Killed)"));
    EXPECT_TRUE(each.at("restarts").get<bool>());
    EXPECT_EQ(each.at("step").get<int64_t>() - 1 - each.at("checkpoint").get<int64_t>(), each.at("steps_lost"));
    EXPECT_LT(each.at("steps_lost"), 10);
    EXPECT_GT(each.at("seconds_lost"), 0);
    EXPECT_EQ(each.at("checkpoint").get<int64_t>() % 5, 0);
  }
  EXPECT_EQ(restarts[0].at("rank"), 1);
  EXPECT_EQ(restarts[1].at("rank"), 0);
  EXPECT_THAT(test::names_in(folder / "tmp"), IsEmpty());
}

// The supervisor too, mpirun, and what lies between them; in scripts/test-long.sh, many times.
TEST(Restarts, after_any_process_is_killed_leave_no_process_and_no_other_bits) {
  const int kills = test::sweep(1, 150);
  const TempFolder folder;
  test::write_small_run(folder, 20 * kills + 20, /*save_steps=*/test::sweep(3, 7));
  const std::string run =
      fmt::format("--ranks {} {} --set training.save_total_limit=2", test::sweep(1, 2), kSlowEnough);
  run_whole(folder, run);
  Supervised supervised(folder, run + " --restarts 5 --restart-delay 0.01s");
  std::mt19937 random(1);
  for (int k = 0; k < kills; ++k) {
    ASSERT_TRUE(supervised.reaches(20 * k + 1 + static_cast<int64_t>(random() % 20))) << k << "\n" << supervised.log();
    supervised.kill_any(random);
    if (k % 10 == 9) std::printf("%d killed, %zu restarts\n", k + 1, supervised.restarts().size()), std::fflush(stdout);
  }
  ASSERT_EQ(supervised.wait(), 0) << supervised.log();
  EXPECT_THAT(supervised.processes(), IsEmpty());
  expect_same_run(supervised.output(), folder / "whole");
}

TEST(Restarts, without_a_checkpoint_begin_from_the_start) {
  const TempFolder folder;
  test::write_small_run(folder, 150, /*save_steps=*/1000);
  run_whole(folder, kSlowEnough);
  Supervised supervised(folder, fmt::format("{} --restarts 1 --restart-delay 0.05s", kSlowEnough));
  ASSERT_TRUE(supervised.reaches(5)) << supervised.log();
  std::vector<pid_t> run = test::processes_with("NOUGHT_FLIGHT_KEEPER=", folder.path().string());
  ASSERT_FALSE(run.empty());
  for (const pid_t pid : run) kill(pid, SIGKILL);
  ASSERT_EQ(supervised.wait(), 0) << supervised.log();
  expect_same_run(supervised.output(), folder / "whole");
  EXPECT_EQ(supervised.restarts().at(0).at("checkpoint"), 0);
}

TEST(Restarts, end_when_one_step_fails_again_and_again) {
  const TempFolder folder;
  test::write_small_run(folder, 20, /*save_steps=*/1);
  const Ended ended = test::run_program(
      test::train_command(folder, "--restarts 9 --restart-delay 0.01s --set training.learning_rate=1e30"));
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("failed 3 times in a row, the last time with: "), HasSubstr("the gradient norm")));
  EXPECT_EQ(lines_of(folder / "out/restarts.jsonl").size(), 3);
}

TEST(Restarts, do_not_follow_a_signal_that_ends_the_run) {
  const TempFolder folder;
  test::write_small_run(folder, 100'000, /*save_steps=*/50'000);
  Supervised supervised(folder, "--restarts 3");
  ASSERT_TRUE(supervised.reaches(5)) << supervised.log();
  supervised.signal(SIGTERM);
  EXPECT_EQ(supervised.wait(), 143) << supervised.log();
  EXPECT_THAT(supervised.restarts(), IsEmpty());
  EXPECT_THAT(supervised.processes(), IsEmpty());
  EXPECT_THAT(supervised.log(), HasSubstr("stopping after this step"));
}

TEST(Restarts, do_not_follow_a_config_that_is_refused) {
  const TempFolder folder;
  test::write_small_run(folder, 5);
  const Ended ended = test::run_program(test::train_command(folder, "--restarts 3 --set training.learning_rate=-1"));
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_EQ(ended.error_lines(), 1) << ended.err;
  EXPECT_FALSE(fs::exists(folder / "out/restarts.jsonl"));
}

TEST(Restarts, with_options_that_cannot_be_are_refused_in_one_line) {
  const TempFolder folder;
  test::write_small_run(folder, 5);
  const std::vector<std::pair<std::string, std::string>> cases{
      {"--restarts -1", "--restarts must be at least 0, got -1"},
      {"--restarts 1 --min-ranks 0", "--min-ranks must be at least 1, got 0"},
      {"--restarts 1 --ranks 2 --min-ranks 3", "--min-ranks 3 is above --ranks 2"},
      {"--restarts 1 --restart-delay soon", "--restart-delay: expected a time"},
      {"--restarts 1 --ranks 3 --min-ranks 3 --set 'deepspeed.elasticity={\"enabled\": true, \"max_train_batch_size\": "
       "4, \"micro_batch_sizes\": [1], \"version\": 0.1}' --set training.per_device_train_batch_size=null",
       "no number of ranks from --min-ranks 3 to --ranks 3 makes the global batch of 4; the nearest: 2"}};
  for (const auto& [options, message] : cases) {
    const Ended ended = test::run_program(test::train_command(folder, options));
    EXPECT_NE(ended.exit_code, 0);
    EXPECT_EQ(ended.error_lines(), 1) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(message));
  }
  EXPECT_THAT(test::run_program(test::train_command(folder, "--min-ranks 1")).err, HasSubstr("--restarts"));
}

TEST(Restarts, take_the_largest_number_of_ranks_that_makes_the_batch) {
  const TempFolder folder;
  test::write_small_run(folder, 4);
  const Ended ended = test::run_program(
      test::train_command(folder,
                          "--restarts 1 --ranks 3 --min-ranks 1 --set 'deepspeed.elasticity={\"enabled\": true, "
                          "\"max_train_batch_size\": 4, \"micro_batch_sizes\": [1, 2], \"version\": 0.1}' --set "
                          "training.per_device_train_batch_size=null"));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("3 ranks do not make the global batch of 4: the run has 2"));
  EXPECT_THAT(ended.out, HasSubstr("2 ranks"));
}

}  // namespace
}  // namespace nought::restarts_test
