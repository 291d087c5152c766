#include "nought/plan/live_parameters.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "nought/base/text.h"
#include "nought/comm/mesh.h"
#include "nought/plan/budgets.h"
#include "nought/train/validate_run.h"

namespace nought {

namespace {

constexpr std::string_view kKey = "stage3_max_live_parameters";

Prediction with_live(const ModelConfig& config, Layout layout, int64_t most) {
  layout.sharding.live.most = most;
  return predict(config, layout);
}

/// The numbers of elements at which one more Unit of a pipeline stage stays, rising; 0 is the first.
std::vector<int64_t> steps_of(const std::vector<Prediction>& places, int64_t most) {
  std::vector<int64_t> steps{0};
  for (const Prediction& place : places) {
    int64_t sum = 0;
    for (const int64_t size : place.gathered_units)
      if ((sum += size) <= most) steps.push_back(sum);
  }
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  return steps;
}

/// The run in which as much stays as the budgets hold.
Prediction most_that_fits(const ModelConfig& config, const Layout& layout, int64_t most, const MemoryBudgets& budgets) {
  const std::vector<Prediction> places = predict_places(config, layout);
  const std::vector<int64_t> steps = steps_of(places, most);
  const auto fits = [&](const Prediction& each) { return budgets.hold(each.most()); };
  Prediction best = with_live(config, layout, steps.back());
  if (fits(best)) return best;
  best = with_live(config, layout, 0);
  size_t held = 0, beyond = steps.size() - 1;  // places in `steps`: of what fits, or of nothing; and of what does not
  while (beyond - held > 1) {
    const size_t middle = (held + beyond) / 2;
    Prediction each = with_live(config, layout, steps[middle]);
    if (fits(each))
      best = std::move(each), held = middle;
    else
      beyond = middle;
  }
  return best;
}

std::string budget_text(const MemoryBudgets& budgets) {
  return format_bytes(budgets.device > 0 ? budgets.device : budgets.host);
}

}  // namespace

std::string describe_live(const Prediction& prediction) {
  const std::vector<int64_t>& sizes = prediction.gathered_units;
  if (sizes.empty()) return "";
  const LiveCount live = count_live(sizes, prediction.layout.sharding.live.most);
  if (live.units == 0) return fmt::format("none of {} Units stays gathered between its passes", sizes.size());
  return fmt::format("{} of {} Units, {} elements, stay gathered between the passes of a step", live.units,
                     sizes.size(), format_count(static_cast<double>(live.elements)));
}

RunPlan with_live_parameters(RunPlan plan) {
  LiveParameters& live = plan.layout.sharding.live;
  const auto row =
      std::find_if(plan.resolved.begin(), plan.resolved.end(), [](const Resolved& each) { return each.key == kKey; });
  if (plan.layout.zero_stage < 3 || row == plan.resolved.end() || (!plan.live_fits_memory && live.most == 0))
    return plan;
  const ModelConfig config = model_config_of(plan);
  const Layout layout = layout_of(plan);
  const MemoryBudgets budgets = budgets_of(plan);
  const bool asked = live.most > 0;
  const int64_t most = asked ? live.most : std::numeric_limits<int64_t>::max();
  const Prediction found =
      plan.live_fits_memory ? most_that_fits(config, layout, most, budgets) : predict(config, layout);
  live.most = found.layout.sharding.live.most;
  const std::string units = describe_live(found);
  if (units.empty()) {
    row->reason += "; without effect: one rank has all parameters";
    return plan;
  }
  if (plan.live_fits_memory) {
    row->value = fmt::format("{}", live.most);
    row->reason = fmt::format("{}: as much as fits {}", row->reason.substr(0, row->reason.find(": as many")),
                              budget_text(budgets));
  }
  row->reason += fmt::format("; {}", units);
  if (plan.live_fits_memory) row->reason += fmt::format(", and the peak is {}", format_bytes(found.most().peak_total));
  return plan;
}

RunPlan with_common_live_parameters(RunPlan plan, Communicator& ranks, const Context& context) {
  // The search predicts the run several times: one rank does it for all.
  if (!plan.live_fits_memory || ranks.rank() == 0) plan = with_live_parameters(std::move(plan));
  if (!plan.live_fits_memory) return plan;
  std::array<double, 1> most{ranks.rank() == 0 ? static_cast<double>(plan.layout.sharding.live.most) : 0.0};
  all_reduce_values(ranks, context, most);
  plan.layout.sharding.live.most = static_cast<int64_t>(most[0]);
  return plan;
}

}  // namespace nought
