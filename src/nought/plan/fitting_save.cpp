#include "nought/plan/fitting_save.h"

#include <array>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "nought/base/host.h"
#include "nought/base/text.h"
#include "nought/comm/mesh.h"
#include "nought/plan/budgets.h"
#include "nought/plan/predict.h"
#include "nought/train/validate_run.h"

namespace nought {

namespace {

/// Whether the run that saves beside the training has room, and why.
std::pair<bool, std::string> judge(const RunPlan& plan) {
  Layout layout = layout_of(plan);
  layout.async_save = true;
  const RankMemory most = predict(model_config_of(plan), layout).most();
  const auto category = static_cast<size_t>(Category::checkpoint);
  const std::string copies = format_bytes(most.peak[category] + most.host[category]);
  const MemoryBudgets budgets = budgets_of(plan);
  if (!budgets.none()) {
    const std::string budget = format_bytes(budgets.device > 0 ? budgets.device : budgets.host);
    if (budgets.hold(most)) return {true, fmt::format("auto: copies of states take {} and fit {}", copies, budget)};
    return {false, fmt::format("auto: with copies of states the peak would be {}, more than fits {}",
                               format_bytes(most.peak_total), budget)};
  }
  const int here = layout.ranks_per_host > 0 ? layout.ranks_per_host : layout.ranks;
  const int64_t needed = here * most.ram_peak, machine = memory_of_machine();
  if (layout.on_gpu() || needed <= machine)
    return {true, fmt::format("auto: copies of states take {}, and nothing says that there is no room", copies)};
  return {false, fmt::format("auto: with copies of states {} ranks would take {}, and this machine has {}", here,
                             format_bytes(needed), format_bytes(machine))};
}

RunPlan decided(RunPlan plan, bool beside, const std::string& why) {
  plan.layout.async_save = beside;
  for (Resolved& row : plan.resolved)
    if (row.key == "async_save") row.value = beside ? "true" : "false", row.reason = why;
  return plan;
}

}  // namespace

RunPlan with_fitting_save(RunPlan plan) {
  if (!plan.async_save_fits_memory) return plan;
  const auto [fits, why] = judge(plan);
  return decided(std::move(plan), fits, why);
}

RunPlan with_common_fitting_save(RunPlan plan, Communicator& ranks, const Context& context) {
  if (!plan.async_save_fits_memory) return plan;
  std::pair<bool, std::string> judged{false, "auto: the first rank decides"};
  if (ranks.rank() == 0) judged = judge(plan);
  std::array<double, 1> fits{judged.first ? 1.0 : 0.0};
  all_reduce_values(ranks, context, fits);
  return decided(std::move(plan), fits[0] > 0, judged.second);
}

}  // namespace nought
