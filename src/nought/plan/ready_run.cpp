#include "nought/plan/ready_run.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "nought/base/text.h"
#include "nought/plan/fitting_save.h"
#include "nought/plan/fitting_tiles.h"
#include "nought/plan/fitting_update.h"
#include "nought/plan/live_parameters.h"
#include "nought/weights/model_source.h"

namespace nought {

namespace {

/// The plan whose rows say how long the run is about, by what was read of its data.
RunPlan with_expected_length(RunPlan plan, const DataLook& look) {
  const double updates = static_cast<double>(look.about_samples) / static_cast<double>(plan.layout.train_batch());
  const RunPlan known = with_steps_per_epoch(plan, std::max<int64_t>(1, std::llround(updates)));
  for (size_t i = 0; i < plan.resolved.size(); ++i) {
    if (plan.resolved[i].value == known.resolved[i].value) continue;
    plan.resolved[i] = {known.resolved[i].key, "about " + known.resolved[i].value,
                        fmt::format("{}, as {} of {} of text let expect", known.resolved[i].reason,
                                    format_bytes(look.read_bytes), format_bytes(look.text_bytes))};
  }
  plan.warnings = known.warnings;
  return plan;
}

}  // namespace

RunPlan with_what_fits(RunPlan plan) {
  return with_fitting_save(with_live_parameters(with_fitting_update(with_fitting_tiles(std::move(plan)))));
}

ReadyRun ready_run(const RunPlan& given, StartMode mode, const ValidateOptions& options) {
  RunPlan plan = with_model_folder(given);
  RunInputs inputs = validate_run(plan, mode, options);
  if (inputs.row_tokens > 0) plan.layout.row_tokens = inputs.row_tokens;
  plan = with_what_fits(std::move(plan));
  if (inputs.steps_per_epoch > 0) plan = with_steps_per_epoch(std::move(plan), inputs.steps_per_epoch);
  if (inputs.data.about_samples > 0) plan = with_expected_length(std::move(plan), inputs.data);
  return {std::move(plan), std::move(inputs)};
}

}  // namespace nought
