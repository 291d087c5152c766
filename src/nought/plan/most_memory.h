// The least and the most of what several ranks hold, number by number.
#pragma once

#include <algorithm>
#include <span>

#include "nought/train/observer.h"

namespace nought {

/// choose(a, b) of each number, over all ranks; one at least.
template <class Choose>
RankMemory extreme_of(std::span<const RankMemory> ranks, Choose choose) {
  RankMemory result = ranks.front();
  for (const RankMemory& each : ranks) {
    for (size_t c = 0; c < kNumCategories; ++c) {
      result.peak[c] = choose(result.peak[c], each.peak[c]);
      result.host[c] = choose(result.host[c], each.host[c]);
      result.file[c] = choose(result.file[c], each.file[c]);
    }
    result.peak_total = choose(result.peak_total, each.peak_total);
    result.fragmentation = choose(result.fragmentation, each.fragmentation);
    result.host_peak = choose(result.host_peak, each.host_peak);
    result.ram_peak = choose(result.ram_peak, each.ram_peak);
    result.file_peak = choose(result.file_peak, each.file_peak);
  }
  return result;
}

inline RankMemory most_of(std::span<const RankMemory> ranks) {
  return extreme_of(ranks, [](int64_t a, int64_t b) { return std::max(a, b); });
}
inline RankMemory least_of(std::span<const RankMemory> ranks) {
  return extreme_of(ranks, [](int64_t a, int64_t b) { return std::min(a, b); });
}

}  // namespace nought
