// How large the rank of an adapter may be in a budget.
#pragma once

#include "nought/models/adapter_config.h"
#include "nought/plan/predict.h"

namespace nought {

struct LargestRank {
  int64_t rank = 0;        // 0: not even 1 fits
  int64_t peak = 0;        // predicted bytes of a rank of the run with it
  bool by_matrix = false;  // the smallest matrix that is adapted has no larger one: the budget has room for more
};
/// config: of the model, without the adapter. Ranks by patterns (rank_pattern) stay as they are.
LargestRank largest_rank(const AdapterConfig& adapter, const ModelConfig& config, const Layout& layout,
                         int64_t device_memory);

}  // namespace nought
