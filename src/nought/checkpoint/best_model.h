// BestModel: the best checkpoint of a run so far, by a number of its validation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "nought/base/json.h"
#include "nought/config/run_plan.h"
#include "nought/engine/evaluation.h"

namespace nought {

struct BestModel {
  int64_t step = 0;
  EvalMetric metric = EvalMetric::loss;
  double value = 0;

  /// "eval_loss 1.2345".
  std::string str() const;
  Json json() const;
  static BestModel from_json(const Json& json);
  friend bool operator==(const BestModel&, const BestModel&) = default;
};

/// The number of an evaluation that the metric names.
double value_of(const Evaluation& evaluation, EvalMetric metric);

/// The best of the run after a checkpoint at `step` was validated. Of equal ones that is the earlier; a value that is
/// no number is never the best.
std::optional<BestModel> best_with(const std::optional<BestModel>& best, int64_t step, const Evaluation& evaluation,
                                   const BestModelPlan& plan);

}  // namespace nought
