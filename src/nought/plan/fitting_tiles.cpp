#include "nought/plan/fitting_tiles.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "nought/base/text.h"
#include "nought/train/validate_run.h"

namespace nought {

namespace {

constexpr int64_t kMostTiles = 1024;

/// Calls f(prediction) with 1, 2, 4 tiles and so on, while the model can be cut into so many and f returns true.
template <class F>
void for_each_number(const ModelConfig& config, Layout layout, const F& f) {
  for (int64_t tiles = 1; tiles <= kMostTiles; tiles *= 2) {
    layout.recompute.unit_tiles = tiles;
    try {
      if (!f(predict(config, layout))) return;
    } catch (const ConfigError&) {
      if (tiles == 1) throw;
      return;  // a tile would have nothing
    }
  }
}

}  // namespace

std::optional<Prediction> fewest_tiles_that_fit(const ModelConfig& config, const Layout& layout,
                                                const MemoryBudgets& budgets) {
  std::optional<Prediction> found;
  for_each_number(config, layout, [&](Prediction prediction) {
    if (budgets.hold(prediction.most())) found = std::move(prediction);
    return !found;
  });
  return found;
}

RunPlan with_fitting_tiles(RunPlan plan) {
  if (plan.layout.recompute.unit_tiles != 0) return plan;
  const ModelConfig config = model_config_of(plan);
  const Layout layout = layout_of(plan);
  const int64_t budget = plan.device_memory > 0 ? plan.device_memory : plan.host_memory;
  const std::optional<Prediction> found = fewest_tiles_that_fit(config, layout, budgets_of(plan));
  if (!found) {
    int64_t least = std::numeric_limits<int64_t>::max();
    for_each_number(config, layout, [&](const Prediction& each) {
      least = std::min(least, each.most().peak_total);
      return true;
    });
    fail<ConfigError>("training.memory_centric_tiling = \"auto\": no number of tiles fits {}; the least peak is {}",
                      format_bytes(budget), format_bytes(least));
  }
  plan.layout.recompute.unit_tiles = found->layout.recompute.unit_tiles;
  for (Resolved& row : plan.resolved)
    if (row.key == "memory_centric_tiling") {
      row.value = fmt::format("{}", plan.layout.recompute.unit_tiles);
      row.reason = fmt::format("auto: the fewest that fit {}; the peak is {}", format_bytes(budget),
                               format_bytes(found->memory.peak_total));
    }
  return plan;
}

}  // namespace nought
