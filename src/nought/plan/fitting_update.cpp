#include "nought/plan/fitting_update.h"

#include <array>
#include <filesystem>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "nought/base/text.h"
#include "nought/comm/mesh.h"
#include "nought/plan/budgets.h"
#include "nought/plan/predict.h"
#include "nought/train/validate_run.h"

namespace nought {

namespace {

int64_t free_in(const std::filesystem::path& folder) {
  std::error_code failed;
  const auto space = std::filesystem::space(folder, failed);
  return failed ? -1 : static_cast<int64_t>(space.available);
}

/// Why it does not fit; "" if it does. Ranks are taken to share one disk.
std::string lacks_room(const RunPlan& plan, int64_t free) {
  const Layout layout = layout_of(plan);
  const OffloadOptions& states = layout.sharding.offload_optimizer;
  const bool in_files = states.tier.pool == Pool::file;
  if (in_files && free < 0) free = free_in(states.tier.folder);
  const MemoryBudgets budgets = budgets_of(plan);
  if (budgets.none() && (!in_files || free < 0)) return "";
  const RankMemory most = predict(model_config_of(plan), layout).most();
  if (!budgets.hold(most))
    return fmt::format("auto: the peak would be {}, more than fits {}", format_bytes(most.peak_total),
                       format_bytes(budgets.device > 0 ? budgets.device : budgets.host));
  int64_t files = 0;
  for (const int64_t bytes : most.file) files += bytes;
  if (in_files && free >= 0 && files * layout.ranks > free)
    return fmt::format("auto: files would take {}, and {} has {} left", format_bytes(files * layout.ranks),
                       states.tier.folder, format_bytes(free));
  return "";
}

/// Whether room decides.
bool is_open(const RunPlan& plan) { return plan.update_fits_room && plan.layout.sharding.offload_optimizer.early; }

RunPlan with_late_updates(RunPlan plan, const std::string& why) {
  OffloadOptions& states = plan.layout.sharding.offload_optimizer;
  states.early = states.undo = false;
  for (Resolved& row : plan.resolved)
    if (row.key == "update_beside_backward") row.value = "false", row.reason = why;
  return plan;
}

}  // namespace

RunPlan with_fitting_update(RunPlan plan, int64_t free) {
  if (!is_open(plan)) return plan;
  const std::string why = lacks_room(plan, free);
  return why.empty() ? plan : with_late_updates(std::move(plan), why);
}

RunPlan with_common_fitting_update(RunPlan plan, Communicator& ranks, const Context& context, int64_t free) {
  if (!is_open(plan)) return plan;
  std::string why = lacks_room(plan, free);
  std::array<double, 1> lacking{why.empty() ? 0.0 : 1.0};
  all_reduce_values(ranks, context, lacking);
  if (lacking[0] == 0) return plan;
  if (why.empty()) why = "auto: another rank has no room for it";
  return with_late_updates(std::move(plan), why);
}

}  // namespace nought
