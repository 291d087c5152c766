#include "nought/plan/zero_cost.h"

#include "nought/base/text.h"

namespace nought {

std::string describe_zero_cost(const ModelConfig& config, const Prediction& prediction) {
  const Layout& layout = prediction.layout;
  if (layout.zero_stage < 2 || layout.stages() == 1 || layout.data_ranks() == 1) return "";
  const std::vector<int64_t>& units = prediction.gathered_units;
  const bool all_stay = count_live(units, layout.sharding.live.most).units == units.size();
  const Prediction once = predict_at(config, layout.at_zero_stage(1), prediction.place);
  return fmt::format(
      "stage {} {} in each of {} micro-batch{}: rank {} sends {} per step, at stage 1 it is {}", layout.zero_stage,
      layout.zero_stage == 2 || all_stay ? "reduces gradients" : "gathers parameters and reduces gradients",
      layout.accumulation, layout.accumulation == 1 ? "" : "es", prediction.place * (layout.ranks / layout.stages()),
      format_bytes(prediction.traffic.total_bytes()), format_bytes(once.traffic.total_bytes()));
}

}  // namespace nought
