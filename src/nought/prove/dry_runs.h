// run_dry(): the dry run of one rank of each class of a job, with what it asks of others and what it holds.
#pragma once

#include <vector>

#include "nought/models/config.h"
#include "nought/plan/predict.h"
#include "nought/prove/rank_classes.h"
#include "nought/prove/recording.h"
#include "nought/prove/transcript.h"

namespace nought {

struct DryRuns {
  RankClasses classes;
  RecordedRanks ranks;
  std::vector<std::vector<HeldBetween>> held;  // by class
  std::vector<Prediction> predictions;         // by class
  std::vector<StateIntervals> asked, saved;    // by class: what it reads when it resumes, and what it writes
};

/// The ranks compute on the CPU here, whatever the layout says: their calls and waits are the same on a GPU.
/// DeadlinePassed if they take longer.
DryRuns run_dry(const ModelConfig& config, const Layout& layout, bool with_frozen = true,
                Deadline deadline = Deadline::max());

/// What all ranks of the job write to a checkpoint.
int64_t checkpoint_bytes(const DryRuns& runs);

/// What is leased and never released, or grows from step to step, on any rank; nothing if all is given back.
std::optional<Counterexample> find_leak(const std::vector<HeldBetween>& held, int rank);

}  // namespace nought
