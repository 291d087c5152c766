// Runs that a proof accepts go as it says: random ones make two steps, save and resume in a tenth more memory than is
// predicted of them, and nobody waits for ever.
#include "prove/random_runs.h"

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/size.h"
#include "support/sweep.h"
#include "support/temp_folder.h"
#include "support/trainer_runs.h"
#include <gtest/gtest.h>

#include "nought/checkpoint/receipt_check.h"
#include "nought/comm/thread.h"
#include "nought/config/run_config.h"
#include "nought/plan/ready_run.h"
#include "nought/prove/proof.h"

namespace nought::random_runs_test {
namespace {

using test::RandomRun;

constexpr std::chrono::seconds kMostSeconds{60};

/// Ends the program, and says what it did, if that takes too long.
class Watchdog {
 public:
  explicit Watchdog(std::string what) : what_(std::move(what)), thread_([this] { watch(); }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    condition_.notify_one();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    if (condition_.wait_for(lock, kMostSeconds, [this] { return done_; })) return;
    std::fprintf(stderr, "it hangs: %s\n", what_.c_str());
    std::abort();
  }

  std::string what_;
  std::mutex mutex_;
  std::condition_variable condition_;
  bool done_ = false;
  std::thread thread_;
};

/// The run if a proof accepts it; nothing if the program refuses it, which its own message says.
std::optional<RunPlan> accepted(const RandomRun& run, StartMode mode, std::string& refusal) {
  try {
    const RunPlan plan = resolve(make_run_config(run.file, "RUN.json", {}), run.ranks);
    ReadyRun ready = ready_run(plan, mode);
    const Proof proof = prove(ready.plan, ready.inputs.config, resumes(mode));
    require_holds(proof.properties);
    ready.plan.layout.wire = Wire::threads;  // whose collectives need no memory
    const Prediction most = most_demanding(predict_places(ready.inputs.config, layout_of(ready.plan)));
    ready.plan.device_memory = most.most().peak_total * 11 / 10;
    ready.plan.host_memory = most.most().ram_peak * 11 / 10;
    return std::move(ready.plan);
  } catch (const Error& error) {
    refusal = error.what();
    return std::nullopt;
  }
}

std::vector<double> losses_of(const RunPlan& plan, int ranks, StartMode mode) {
  test::ToldRun told;
  run_ranks(ranks, [&](Communicator& world, const Context& context) {
    world.set_timeout(kMostSeconds / 2);
    context.memory->set_limit(plan.device_memory);
    context.memory->set_limit(plan.host_memory, Pool::host);
    Trainer trainer(plan, mode, world, context, {&told});
    EXPECT_EQ(trainer.run(), 0);
  });
  return told.losses();
}

/// "" if the run was accepted, and went as it should; or why the program refuses it.
std::string refusal_of(uint64_t seed) {
  const test::TempFolder folder;
  const RandomRun run = test::random_run(seed, folder);
  const std::string what = fmt::format("seed {} on {} ranks: {}", seed, run.ranks, run.file.dump());
  const Watchdog watchdog(what);
  SCOPED_TRACE(what);
  std::string refusal;
  try {
    const std::optional<RunPlan> plan = accepted(run, StartMode::fresh, refusal);
    if (!plan) return refusal;
    const std::vector<double> whole = losses_of(*plan, run.ranks, StartMode::fresh);
    EXPECT_EQ(whole.size(), 2U);
    if (const std::string out = plan->output_dir; has_receipt(out)) {
      EXPECT_EQ(check_links(Receipt(out), out).checkpoints.size(), 2U);
    }
    std::filesystem::remove_all(folder / "out/checkpoint-2");
    if (const std::optional<RunPlan> resumed = accepted(run, StartMode::resume, refusal)) {
      EXPECT_EQ(losses_of(*resumed, run.ranks, StartMode::resume), std::vector(whole.begin() + 1, whole.end()));
    } else {
      ADD_FAILURE() << "the resume is refused: " << refusal;
    }
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
  return "";
}

NOUGHT_SIZE(medium);
TEST(RandomRuns, what_is_accepted_runs_saves_and_resumes_in_a_tenth_more_memory_than_predicted) {
  const char* first = std::getenv("NOUGHT_SEED");  // repeats a failure
  const int wanted = first != nullptr ? 1 : test::sweep(30, 1000);
  uint64_t seed = first != nullptr ? std::stoull(first) : 1;
  for (int accepted = 0; accepted < wanted; ++seed) {
    const std::string refusal = refusal_of(seed);
    ASSERT_TRUE(first == nullptr || refusal.empty()) << refusal;
    accepted += refusal.empty() ? 1 : 0;
  }
  fmt::print("{} of {} random runs were accepted\n", wanted, seed - 1);
}

}  // namespace
}  // namespace nought::random_runs_test
