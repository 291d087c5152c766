// StepSource: the batches that the steps of a run are made of, as a function of the step, so that a resumed run needs
// to know its step only.
#pragma once

#include <cstdint>
#include <vector>

#include "nought/nn/batch.h"

namespace nought {

class StepSource {
 public:
  virtual ~StepSource() = default;

  /// The micro-batches of a step for this rank, in their order.
  virtual std::vector<Batch> batches(int64_t step, Memory& memory) const = 0;
  /// What the loss of a step is divided by, over all ranks: see Objective::weight().
  virtual double weight_of_step(int64_t step) const = 0;
  /// What the loss of a part of a step is divided by: over `ranks` ranks from `first` on.
  virtual double weight_of_step(int64_t step, int first, int ranks) const = 0;
  /// The tokens of a step over all ranks, without padding.
  virtual int64_t tokens_of_step(int64_t step) const = 0;
  /// The number of steps that see all samples `epochs` times. The last step may begin another epoch.
  virtual int64_t steps_for(double epochs) const = 0;

  virtual int64_t num_samples() const = 0;
  virtual int64_t num_tokens() const = 0;
  /// A number that differs if any token differs.
  virtual uint64_t fingerprint() const = 0;
};

}  // namespace nought
