// ProgressPrinter: prints what a user sees of a run: a header, a progress line, checkpoints, and at the end the memory
// of every rank.
//
// On a terminal the progress line is rewritten in place at every step. In a file or a pipe there is one line per
// logging_steps.
#pragma once

#include <chrono>
#include <cstdio>
#include <deque>

#include "nought/observe/live_line.h"
#include "nought/train/observer.h"

namespace nought {

/// "perplexity 12.3  3.6211 bits per token  0.9011 bits per byte".
std::string describe(const Evaluation& evaluation);

class ProgressPrinter final : public TrainObserver {
 public:
  /// predicted: the memory predicted for every rank. It is shown beside what was measured.
  ProgressPrinter(std::FILE* out, bool live, int64_t logging_steps, const RankMemory& predicted)
      : line_(out, live), logging_steps_(logging_steps), predicted_(predicted) {}
  void on_start(const RunSummary& summary) override;
  void on_step(const StepReport& report) override;
  void on_checkpoint(const std::filesystem::path& path) override;
  void on_validation(int64_t step, const Evaluation& evaluation) override;
  void on_sample(int64_t step, const std::string& prompt, const std::string& text) override;
  void on_interrupt(int64_t step, const std::filesystem::path& checkpoint) override;
  void on_best(const BestModel& best, const std::filesystem::path& checkpoint) override;
  void on_collectives(const std::vector<CollectiveTotal>& totals) override;
  void on_finish(const std::vector<RankMemory>& memory, const std::filesystem::path& exported) override;

 private:
  LiveLine line_;
  int64_t logging_steps_;
  RankMemory predicted_;
  int64_t max_steps_ = 0, first_step_ = 0;
  std::deque<double> recent_seconds_;  // how long the last steps took: the remaining time is estimated from them
  double trained_seconds_ = 0, peak_flops_ = 0;
};

}  // namespace nought
