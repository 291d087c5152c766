// RunCalendar: what is due after which step of a run. A function of the plan and the number of samples alone, so that a
// resumed run does at each step what it would have done.
#pragma once

#include <cstdint>

#include "nought/config/run_plan.h"

namespace nought {

class RunCalendar {
 public:
  /// samples: those of an epoch. The plan must outlive this object.
  RunCalendar(const RunPlan& plan, int64_t samples) : plan_(plan), samples_(samples) {}

  bool saves_after(int64_t step) const {
    return plan_.save_epochs ? ends_epoch(step) : plan_.save_steps > 0 && step % plan_.save_steps == 0;
  }
  bool validates_after(int64_t step) const {
    if (plan_.best && saves_after(step)) return true;
    switch (plan_.eval_strategy) {
      case EvalStrategy::no:
        return false;
      case EvalStrategy::steps:
        return step % plan_.eval_steps == 0;
      case EvalStrategy::epoch:
        return ends_epoch(step);
    }
    return false;
  }
  bool samples_after(int64_t step) const {
    return plan_.sample && (step % plan_.sample->steps == 0 || step == plan_.max_steps);
  }
  bool compares_replicas_after(int64_t step) const {
    return plan_.weight_hash_interval > 0 && step % plan_.weight_hash_interval == 0;
  }

 private:
  /// Whether a sample of the next epoch comes after this step, and none before it.
  bool ends_epoch(int64_t step) const {
    return step * plan_.layout.train_batch() / samples_ > (step - 1) * plan_.layout.train_batch() / samples_;
  }

  const RunPlan& plan_;
  int64_t samples_;
};

}  // namespace nought
