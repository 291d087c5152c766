// ProgressPrinter: prints what a user sees of a run: a header, a progress line, checkpoints, and at the end the memory
// of every rank.
//
// On a terminal the progress line is rewritten in place at every step, and lines keep to its width. In a file or a pipe
// there is one line per logging_steps, and nothing is left out.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>

#include "nought/comm/mesh.h"
#include "nought/observe/live_line.h"
#include "nought/observe/pace.h"
#include "nought/train/observer.h"

namespace nought {

/// "perplexity 12.3  3.6211 bits per token  0.9011 bits per byte".
std::string describe(const Evaluation& evaluation);

/// The progress line of a step, at most `width` columns wide (0: no limit): "step 20/600  loss 3.6140 ... ETA 3m23s".
/// Seconds below 0 are not known: "ETA -".
std::string step_line(const StepReport& report, int64_t max_steps, double seconds_left, int width);
/// The times of a step's phases and of its communication, in one line of that width.
std::string breakdown_line(const StepBreakdown& times, int width);

/// What was expected of a run.
struct RunPrediction {
  std::vector<RankMemory> memory = {};           // of ranks, by their place on the pipeline axis
  double seconds = 0;                            // of a step; 0: not known
  std::string assumed = {};                      // what the memory takes for granted
  std::string step = {};                         // the seconds as text, with their spread
  bool busy = false;                             // other programs ran while it was predicted
  std::vector<Mesh::GroupTraffic> traffic = {};  // what a rank at the first place sends in a step
};

class ProgressPrinter final : public TrainObserver {
 public:
  /// columns: those of the terminal, as LiveLine takes them. predicted: shown beside what was measured.
  ProgressPrinter(std::FILE* out, Columns columns, int64_t logging_steps, RunPrediction predicted)
      : line_(out, std::move(columns)), logging_steps_(logging_steps), predicted_(std::move(predicted)) {}
  /// What keeps updates of offloaded states behind the backward pass, or "nothing ..."; on_finish() says it.
  void set_update_order(std::string reason) { update_order_ = std::move(reason); }
  /// From now on steps have no lines.
  void set_quiet() { quiet_ = true; }
  void on_start(const RunSummary& summary) override;
  void on_step(const StepReport& report) override;
  void on_checkpoint(const SaveOutcome& saved) override;
  void on_failed_save(const SaveOutcome& failed) override;
  void on_validation(int64_t step, const Evaluation& evaluation) override;
  void on_sample(int64_t step, const std::string& prompt, const std::string& text) override;
  void on_interrupt(int64_t step, const std::filesystem::path& checkpoint) override;
  void on_best(const BestModel& best, const std::filesystem::path& checkpoint) override;
  void on_collectives(const std::vector<CollectiveTotal>& totals) override;
  void on_finish(const std::vector<RankMemory>& memory, const std::filesystem::path& exported) override;
  /// Prints a line that the run has for its user.
  void note(const std::string& line) { say("note: " + line); }

 private:
  /// Prints a line that stays. What goes on below stands behind the first word.
  void say(const std::string& line) { line_.print(line, 8); }

  LiveLine line_;
  int64_t logging_steps_;
  bool quiet_ = false;
  RunPrediction predicted_;
  int64_t max_steps_ = 0, first_step_ = 0;
  Pace pace_;
  std::vector<double> seconds_;  // of each step
  double peak_flops_ = 0;
  std::string update_order_;
  StepBreakdown measured_;  // communication and offload of all steps that have a breakdown
};

}  // namespace nought
