// A run with every value that model and data decide. `nought check` shows it and `nought train` begins with it: one
// function serves both, so that what one shows or refuses the other does too.
#pragma once

#include "nought/config/run_plan.h"
#include "nought/train/validate_run.h"

namespace nought {

struct ReadyRun {
  RunPlan plan;  // with the model's folder, tiles and gathered Units that fit, and, if the whole data was read, the
                 // length of the run; else its rows alone say what that length is about
  RunInputs inputs;
};

/// The plan with what is decided by what fits: tiles, when updates run, the Units that stay gathered, and whether
/// checkpoints are written beside the training.
RunPlan with_what_fits(RunPlan plan);

/// Opens what the run opens, and resolves what waits for that. Throws what the run would throw, but for
/// require_memory().
ReadyRun ready_run(const RunPlan& plan, StartMode mode, const ValidateOptions& options = {});

}  // namespace nought
