// What a person sees of a run: a header, a progress line, checkpoints, and the memory of every rank at the end.
//
// On a terminal the progress line is rewritten in place at every step; in a file or a pipe there is one line per
// logging_steps.
#pragma once

#include <chrono>
#include <cstdio>
#include <deque>

#include "nought/train/observer.h"

namespace nought {

class ProgressPrinter final : public TrainObserver {
 public:
  /// predicted: what every rank should hold, shown beside what it held.
  ProgressPrinter(std::FILE* out, bool live, int64_t logging_steps, const RankMemory& predicted)
      : out_(out), live_(live), logging_steps_(logging_steps), predicted_(predicted) {}
  void on_start(const RunSummary& summary) override;
  void on_step(const StepReport& report) override;
  void on_checkpoint(const std::filesystem::path& path) override;
  void on_validation(double loss) override;
  void on_finish(const std::vector<RankMemory>& memory, const std::filesystem::path& exported) override;

 private:
  /// A line that stays.
  void print(const std::string& line);

  std::FILE* out_;
  bool live_;
  int64_t logging_steps_;
  RankMemory predicted_;
  int64_t max_steps_ = 0, first_step_ = 0;
  bool line_open_ = false;             // a live line without its newline
  std::deque<double> recent_seconds_;  // of the last steps: the ETA follows the machine
  double trained_seconds_ = 0;
};

}  // namespace nought
