#include "nought/plan/largest_rank.h"

#include <algorithm>

#include "nought/models/adapter_modules.h"

namespace nought {

LargestRank largest_rank(const AdapterConfig& adapter, const ModelConfig& config, const Layout& layout,
                         int64_t device_memory) {
  LargestRank largest;
  AdapterConfig each = adapter;
  const auto adapted = [&](int64_t rank) -> std::optional<ModelConfig> {
    each.r = rank;
    try {
      return with_adapter(config, resolve_adapter(each, config, "adapter"));
    } catch (const ConfigError&) {
      return {};  // above what a matrix has
    }
  };
  const auto fits = [&](int64_t rank) {
    const std::optional<ModelConfig> with = adapted(rank);
    largest.by_matrix = !with;
    if (!with) return false;
    const int64_t peak = predict(*with, layout).most().peak_total;
    if (peak > device_memory) return false;
    largest.rank = rank, largest.peak = peak;
    return true;
  };
  int64_t good = 0, bad = 1;
  for (; fits(bad); bad *= 2) good = bad;
  bool by_matrix = largest.by_matrix;
  while (bad - good > 1) {
    const int64_t middle = good + (bad - good) / 2;
    if (fits(middle)) {
      good = middle;
    } else {
      bad = middle, by_matrix = largest.by_matrix;
    }
  }
  largest.by_matrix = by_matrix;
  return largest;
}

}  // namespace nought
