#include "nought/plan/ready_run.h"

#include <utility>

#include "nought/plan/fitting_tiles.h"
#include "nought/train/model_source.h"

namespace nought {

ReadyRun ready_run(const RunPlan& given, StartMode mode, const ValidateOptions& options) {
  RunPlan plan = with_model_folder(given);
  RunInputs inputs = validate_run(plan, mode, options);
  plan = with_fitting_tiles(std::move(plan));
  if (inputs.steps_per_epoch > 0) plan = with_steps_per_epoch(std::move(plan), inputs.steps_per_epoch);
  return {std::move(plan), std::move(inputs)};
}

}  // namespace nought
