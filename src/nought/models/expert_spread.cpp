#include "nought/models/expert_spread.h"

#include <algorithm>
#include <cstdlib>

#include "nought/base/error.h"

namespace nought {

void require_spreadable(const ModelConfig& config, int64_t expert_ranks, int64_t data_ranks) {
  if (expert_ranks == 1) return;
  require<ConfigError>(config.experts.has_value(),
                       "ep_size = {}: a {} model has no experts that ranks could hold; write ep_size 1 (tp_size cuts "
                       "its matrices, zero_optimization.stage 3 shards them)",
                       expert_ranks, config.family);
  const int64_t experts = config.experts->num_experts;
  if (experts % expert_ranks == 0) return;
  int64_t nearest = 1;
  for (int64_t size = 1; size <= std::min(experts, data_ranks); ++size)
    if (experts % size == 0 && data_ranks % size == 0 &&
        std::abs(size - expert_ranks) < std::abs(nearest - expert_ranks))
      nearest = size;
  fail<ConfigError>(
      "ep_size = {}: {} ranks cannot hold equally many of the {} experts of a {} model; the nearest size that can, and "
      "that divides the {} data-parallel ranks, is {}",
      expert_ranks, expert_ranks, experts, config.family, data_ranks, nearest);
}

}  // namespace nought
