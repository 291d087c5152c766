#include "nought/models/expert_spread.h"

#include <algorithm>
#include <cstdlib>

#include "nought/base/error.h"

namespace nought {

std::string reason_not_to_spread(const ModelConfig& config, int64_t ranks) {
  if (ranks == 1) return "";
  if (!config.experts) return fmt::format("a {} model has no experts that ranks could hold", config.family);
  const int64_t experts = config.experts->num_experts;
  if (experts % ranks == 0) return "";
  return fmt::format("{} ranks cannot hold equally many of the {} experts of a {} model", ranks, experts,
                     config.family);
}

void require_spreadable(const ModelConfig& config, int64_t expert_ranks, int64_t data_ranks) {
  const std::string reason = reason_not_to_spread(config, expert_ranks);
  if (reason.empty()) return;
  require<ConfigError>(config.experts.has_value(),
                       "ep_size = {}: {}; write ep_size 1 (tp_size cuts its matrices, zero_optimization.stage 3 "
                       "shards them)",
                       expert_ranks, reason);
  const int64_t experts = config.experts->num_experts;
  int64_t nearest = 1;
  for (int64_t size = 1; size <= std::min(experts, data_ranks); ++size)
    if (experts % size == 0 && data_ranks % size == 0 &&
        std::abs(size - expert_ranks) < std::abs(nearest - expert_ranks))
      nearest = size;
  fail<ConfigError>("ep_size = {}: {}; the nearest size that can, and that divides the {} data-parallel ranks, is {}",
                    expert_ranks, reason, data_ranks, nearest);
}

}  // namespace nought
