// Runs of the Trainer by a plan on thread ranks, and all that they tell.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/temp_folder.h"

#include "nought/config/run_plan.h"
#include "nought/train/trainer.h"

namespace nought::test {

/// The plan of a run of seconds: a tiny llama on a text of numbered lines in the folder, sequences of 16 tokens, two to
/// a rank and forward pass. So many steps, at a rate that falls from peak_lr to 0, and nothing is saved on the way.
RunPlan plan_on_lines(const TempFolder& folder, int64_t steps, double peak_lr = 1e-2);

/// What a run told its observers.
struct ToldRun final : TrainObserver {
  void on_start(const RunSummary& start) override;
  void on_step(const StepReport& report) override;
  void on_checkpoint(const SaveOutcome& saved) override;
  void on_failed_save(const SaveOutcome& failed) override;
  void on_validation(int64_t step, const Evaluation& evaluation) override;
  void on_sample(int64_t step, const std::string& prompt, const std::string& text) override;
  void on_interrupt(int64_t step, const std::filesystem::path& path) override;
  void on_best(const BestModel& model, const std::filesystem::path& path) override;
  void on_finish(const std::vector<RankMemory>& ranks, const std::filesystem::path& path) override;

  std::vector<double> losses() const;
  /// The losses of the steps after the first `count`.
  std::vector<double> losses_after(int64_t count) const;

  std::vector<std::string> events;  // "start after 0", "step 1", "saved checkpoint-1", "validated 1", ..., "finish"
  RunSummary summary;
  std::vector<StepReport> steps;
  std::vector<std::pair<int64_t, Evaluation>> validations;
  std::vector<std::string> samples;
  std::vector<RankMemory> memory;
  std::filesystem::path exported;
};

inline constexpr int kStopSignal = 15;

/// How a run is started.
struct RunStart {
  int ranks = 1;
  StartMode mode = StartMode::fresh;
  int stopped_rank = 0;                // asked to stop
  int64_t stopped_in_step = 0;         // during this one; 0: nobody is
  std::vector<Context> contexts = {};  // one for each rank; none: the CPU
  bool recorded = false;               // collectives, on a timeline
};

/// Runs the plan with micro_batch x accumulation rows on each data-parallel rank. All ranks end in the same way.
ToldRun run_plan(RunPlan plan, const RunStart& start = {});

/// The run, resumed from its checkpoint of step `from`, has the losses that `whole` has behind it. Later checkpoints
/// go.
void expect_resumes(const RunPlan& plan, const ToldRun& whole, int64_t from, int ranks);

}  // namespace nought::test
