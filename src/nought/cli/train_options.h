// TrainOptions: the command line of nought train and nought check, and the run that it means.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nought/cli/commands.h"
#include "nought/cli/launch.h"
#include "nought/cli/restarts.h"
#include "nought/config/run_config.h"
#include "nought/config/run_plan.h"
#include "nought/plan/advice.h"
#include "nought/train/step_budget.h"
#include "nought/train/validate_run.h"

namespace nought {

/// Keeps the steps that --within chose for when the run is resumed; nothing: a run that begins without --within.
void keep_chosen_steps(const std::filesystem::path& folder, std::optional<int64_t> steps);

struct TrainOptions {
  std::string run_file;
  std::vector<std::string> overrides;
  LaunchOptions launch = {.ranks = {}, .hostfile = {}, .finishes_step = true};
  bool overwrite = false, quiet = false;
  std::optional<int64_t> rewind = {};  // the step to go back to
  std::string trace_file;
  std::string within;     // the time that the steps may take; empty: training.max_steps says how many are made
  int64_t min_steps = 1;  // with `within`
  RestartOptions restarts = {};

  RunConfig config() const;
  /// RUN.json as it was written, with the overrides.
  Json settings() const;
  StartMode mode() const;
  RunPlan plan(int world_size) const;
  /// For advice that is pasted behind this command line.
  PastedRun pasted(const RunPlan& plan) const;
  /// The command line of the run itself: all of these but `restarts`.
  std::vector<std::string> arguments() const;
};

/// What --within asks of a run of this plan. ConfigError if it can not be had.
StepBudget step_budget(const TrainOptions& options, const RunPlan& plan);

/// --resume [PATH|STEP] is training.resume_from_checkpoint, as --set writes it, and so is --rewind STEP.
class ResumeOption {
 public:
  ResumeOption(CLI::App& command, TrainOptions& options);
  /// When the command line is parsed.
  void apply();

 private:
  TrainOptions& options_;
  CLI::Option* option_;
  std::string value_;
};

std::shared_ptr<ResumeOption> add_run_options(CLI::App& command, TrainOptions& options);

}  // namespace nought
