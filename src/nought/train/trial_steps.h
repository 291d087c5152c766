// TrialSteps: training steps on random tokens, to find out how long those of a run take.
#pragma once

#include <cstdint>
#include <string>

#include "nought/config/run_plan.h"
#include "nought/engine/engine.h"
#include "nought/measure/samples.h"
#include "nought/models/decoder.h"
#include "nought/zero/sharded_model.h"

namespace nought {

/// A training step on random tokens.
struct TrialStep {
  std::string name;  // "W1"
  ModelConfig config = {};
  Layout layout = {};  // its ranks are those that measure it
};
/// The step that a run of this plan makes, from random weights. `plan` went through with_model_folder().
TrialStep step_of(const RunPlan& plan, const std::string& name);

/// A model that makes one such step after the other.
class TrialSteps {
 public:
  /// Collective. `trial` must outlive this object.
  TrialSteps(Communicator& ranks, const Context& context, const TrialStep& trial);

  /// The tokens of a step of all ranks.
  int64_t tokens() const;
  /// Model FLOPs, less those of what is frozen.
  double flops_per_token() const;
  /// Makes the next step. Collective.
  void step();

 private:
  const TrialStep& trial_;
  Context context_;
  const Layout& layout_;
  Mesh mesh_;
  const Communicator& samples_;  // ranks that read different ones
  Decoder decoder_;
  ShardedModel model_;
  Engine engine_;
  int64_t made_ = 0;  // micro-batches
};

/// The seconds of a few steps after the first ones, each by the slowest rank: for the time that a run will take. All
/// ranks call it, and each gets the same. Nothing stays in the memory of `context`, nor in its ledger.
Samples measure_steps(Communicator& ranks, const Context& context, const TrialStep& trial);

}  // namespace nought
