#include "nought/simulate/run.h"

#include <algorithm>

#include <fmt/format.h>

namespace nought {

std::string_view name_of(Recomputed recompute) {
  switch (recompute) {
    case Recomputed::none:
      return "none";
    case Recomputed::light:
      return "selective";
    case Recomputed::attention:
      return "attention";
    case Recomputed::products:
      return "products";
    case Recomputed::full:
      return "full";
  }
  return "?";
}

std::string_view name_of(SimulatedSchedule schedule) {
  constexpr std::string_view kNames[] = {"GPipe", "1F1B", "Interleaved1F1B", "ZBH1", "ZBVZeroBubble", "DualPipe"};
  return kNames[static_cast<size_t>(schedule)];
}

double SimulatedRun::in_flight() const {
  const double all = micro_batches();
  if (schedule == SimulatedSchedule::gpipe) return all;
  if (schedule == SimulatedSchedule::interleaved) return std::min((2 * (pp - 1) + (vp - 1) * pp + 1) / vp, all);
  return std::min(pp, all);
}

std::string SimulatedRun::str() const {
  std::string text = fmt::format("tp {} pp {}", tp, pp);
  if (vp > 1) text += fmt::format(" vp {}", vp);
  text += fmt::format(" cp {}", cp);
  if (model.experts > 0) text += fmt::format(" ep {}", ep);
  text += fmt::format(" dp {}, stage {}, micro-batch {} x {}, recompute {}", dp, zero_stage, micro_batch,
                      micro_batches(), name_of(recompute));
  if (offload_states) text += ", states on the host";
  return text;
}

}  // namespace nought
