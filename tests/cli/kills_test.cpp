// A run of several ranks of which any process is killed at any moment: no process outlives it, no checkpoint is
// damaged, the run goes on to the bits of one that was never stopped, and the next start tidies up.
#include <chrono>
#include <csignal>
#include <map>
#include <random>
#include <thread>

#include "support/known_paths.h"
#include "support/loaded_states.h"
#include "support/run_file.h"
#include "support/run_program.h"
#include "support/sweep.h"
#include "support/tagged_processes.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/models/decoder.h"
#include "nought/observe/metrics.h"

namespace nought::kills_test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using test::TempFolder;
using testing::IsEmpty;

const int64_t kSteps = test::sweep(15, 60);
constexpr int64_t kSaveSteps = 1;

/// A run of some ranks in a folder, of which other processes see what is on disk.
class KilledRun {
 public:
  KilledRun(const TempFolder& folder, int ranks, const std::string& output)
      : folder_(folder), ranks_(ranks), output_(folder / output) {
    fs::create_directories(folder_ / "tmp");
  }
  ~KilledRun() {
    for (const pid_t left : test::processes_with(tag_)) kill(left, SIGKILL);
    wait();
  }
  KilledRun(const KilledRun&) = delete;
  KilledRun& operator=(const KilledRun&) = delete;

  void start() {
    std::vector<std::string> words{
        test::known_path("nought"),   "train", (folder_ / "run.json").string(),           "--ranks",
        std::to_string(ranks_),       "--set", "training.output_dir=" + output_.string(), "--set",
        "training.save_total_limit=2"};
    if (!list_checkpoints(output_).empty()) words.push_back(done() ? "--overwrite" : "--resume");
    fs::remove(output_ / "trainer_state.json");  // so that the next start resumes this one
    launcher_ = test::start_tagged(std::move(words), tag_, folder_.path());
    launchers_.push_back(launcher_);
  }

  bool runs() { return launcher_ > 0 && waitpid(launcher_, nullptr, WNOHANG) == 0; }
  /// The exit code of the launcher.
  int wait() {
    int status = 0;
    if (launcher_ > 0 && waitpid(launcher_, &status, 0) == launcher_) launcher_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  /// Kills any process of the run. Those that outlive it for too long.
  std::vector<pid_t> kill_one(std::mt19937& random) {
    const std::vector<pid_t> all = test::processes_with(tag_);
    if (!all.empty()) kill(all[random() % all.size()], SIGKILL);
    const auto limit = Clock::now() + std::chrono::seconds(30);
    std::vector<pid_t> left;
    do {
      runs();  // takes note of the launcher's end
      left = test::processes_with(tag_);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    } while (!left.empty() && Clock::now() < limit);
    wait();
    return left;
  }

  bool done() const { return fs::exists(output_ / "trainer_state.json"); }
  const fs::path& output() const { return output_; }
  std::string log() const { return test::read_bytes(folder_ / "log"); }
  const std::vector<pid_t>& launchers() const { return launchers_; }

  /// The losses in a file of metrics, as text, by step. The last line may be cut.
  std::map<int64_t, std::string> losses(std::string_view name = kMetricsFile) const {
    std::map<int64_t, std::string> losses;
    std::ifstream file(output_ / name);
    for (std::string line; std::getline(file, line);) {
      const auto json = nlohmann::json::parse(line, nullptr, false);
      if (json.is_object() && json.contains("loss")) losses[json.at("step")] = json.at("loss").dump();
    }
    return losses;
  }

 private:
  const TempFolder& folder_;
  int ranks_;
  fs::path output_;
  std::string tag_ = fmt::format("NOUGHT_TEST_RUN={}-{}", getpid(), folder_.path().string());
  pid_t launcher_ = -1;
  std::vector<pid_t> launchers_;
};

class Kills : public testing::TestWithParam<int> {};

TEST_P(Kills, leave_no_process_no_damage_and_no_other_bits) {
  const int ranks = GetParam(), kills = test::sweep(2, 67);
  const TempFolder folder;
  test::write_small_run(folder, kSteps, kSaveSteps);
  KilledRun whole(folder, ranks, "whole");
  whole.start();
  const auto begin = Clock::now();
  const auto microseconds = [&] {
    return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin).count();
  };
  while (whole.log().find("\nstep ") == std::string::npos && whole.runs())
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const auto starting = microseconds();
  ASSERT_EQ(whole.wait(), 0) << whole.log();
  const auto duration = microseconds();
  const std::map<int64_t, std::string> expected = whole.losses();
  ASSERT_EQ(expected.size(), static_cast<size_t>(kSteps));

  const Decoder decoder(ModelConfig::from_json(test::small_model_json()));
  std::map<int64_t, std::map<std::string, std::vector<float>>> states;  // by step, as they were first seen
  const auto check = [&](const KilledRun& run) {
    for (const auto& [step, loss] : run.losses()) EXPECT_EQ(loss, expected.at(step)) << "step " << step;
    for (const fs::path& path : list_checkpoints(run.output())) {
      const int64_t step = read_checkpoint_info(path).step;
      check_other_files(path);
      const auto found = test::states_in(path, decoder);
      EXPECT_EQ(states.emplace(step, found).first->second, found) << path;
    }
  };

  KilledRun run(folder, ranks, "out");
  std::mt19937 random(static_cast<unsigned>(ranks));
  int killed = 0, while_saving = 0;
  for (int starts = 0; killed < kills && starts < 4 * kills; ++starts) {
    run.start();
    // Every second one while it trains, most of which is saving.
    const int64_t from = starts % 2 == 0 ? 0 : starting;
    std::this_thread::sleep_for(std::chrono::microseconds(
        from + static_cast<int64_t>(random() % static_cast<uint64_t>(std::max<int64_t>(duration - from, 1)))));
    killed += run.runs();
    EXPECT_THAT(run.kill_one(random), IsEmpty()) << "these processes outlived the run";
    std::error_code ignored;  // the first one may have been killed before it made its folder
    for (const auto& entry : fs::directory_iterator(run.output(), ignored))
      while_saving += entry.is_directory() && entry.path().extension() == ".partial";
    ASSERT_NO_THROW(check(run)) << "after kill " << killed;
    if (killed % 10 == 0 || killed == kills) {
      std::printf("%d ranks: %d killed, %d with an unfinished save\n", ranks, killed, while_saving);
      std::fflush(stdout);  // a sweep of minutes
    }
  }
  EXPECT_EQ(killed, kills);

  run.start();
  ASSERT_EQ(run.wait(), 0) << run.log();
  check(run);
  EXPECT_EQ(run.losses(), expected);
  EXPECT_EQ(test::read_bytes(run.output() / "model.safetensors"),
            test::read_bytes(whole.output() / "model.safetensors"));
  // A step that was logged and not saved has been made again, to the same loss.
  for (const auto& [step, loss] : run.losses(kDiscardedMetricsFile)) EXPECT_EQ(loss, expected.at(step)) << step;
  fs::remove(run.output() / kDiscardedMetricsFile);
  EXPECT_EQ(test::names_in(run.output()), test::names_in(whole.output())) << "what the kills left is gone";
  EXPECT_THAT(test::names_in(folder / "tmp"), IsEmpty());
  for (const std::string& name : test::names_in("/dev/shm"))
    for (const pid_t launcher : run.launchers())
      EXPECT_EQ(name.find(fmt::format("nought-{}-{}-", getuid(), launcher)), std::string::npos) << name;
}

INSTANTIATE_TEST_SUITE_P(Ranks, Kills, testing::Range(2, test::sweep(3, 5)));

}  // namespace
}  // namespace nought::kills_test
