#include "nought/checkpoint/best_model.h"

#include <cmath>
#include <limits>

#include "nought/config/run_config.h"

namespace nought {

namespace {

/// As metrics.jsonl calls it.
std::string metric_name(EvalMetric metric) { return fmt::format("eval_{}", enum_name(metric)); }

}  // namespace

std::string BestModel::str() const { return fmt::format("{} {:.4f}", metric_name(metric), value); }

Json BestModel::json() const { return {{"step", step}, {"metric", metric_name(metric)}, {"value", value}}; }

BestModel BestModel::from_json(const Json& json) {
  BestModel best{.step = json.at("step"), .value = json.at("value")};
  for (const auto& [metric, name] : EnumNames<EvalMetric>::value)
    if (json.at("metric") == name) best.metric = metric;
  return best;
}

double value_of(const Evaluation& evaluation, EvalMetric metric) {
  switch (metric) {
    case EvalMetric::loss:
      return evaluation.loss;
    case EvalMetric::perplexity:
      return evaluation.perplexity();
    case EvalMetric::bits_per_token:
      return evaluation.bits_per_token();
    case EvalMetric::bits_per_byte:
      return evaluation.bits_per_byte();
    case EvalMetric::reward:
      break;
  }
  for (const auto& [name, value] : evaluation.of_answers)
    if (name == enum_name(metric)) return value;
  return std::numeric_limits<double>::quiet_NaN();
}

std::optional<BestModel> best_with(const std::optional<BestModel>& best, int64_t step, const Evaluation& evaluation,
                                   const BestModelPlan& plan) {
  const BestModel candidate{step, plan.metric, value_of(evaluation, plan.metric)};
  if (std::isnan(candidate.value)) return best;
  if (!best) return candidate;
  return (plan.greater_is_better ? candidate.value > best->value : candidate.value < best->value) ? candidate : best;
}

}  // namespace nought
