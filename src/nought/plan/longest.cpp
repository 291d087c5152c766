#include "nought/plan/longest.h"

#include <algorithm>

#include "nought/models/context_choice.h"

namespace nought {

namespace {

bool can_share(const ModelConfig& config, const Layout& layout) {
  return layout.context_method != ContextMethod::heads ||
         can_share_heads(config, layout.context_ranks, layout.tensor_ranks);
}

LongestSequence longest_at(const ModelConfig& config, Layout layout, int64_t device_memory) {
  LongestSequence longest{.context_ranks = layout.context_ranks};
  const bool learned = config.positions == PositionKind::learned;
  const int64_t most = (learned ? std::min(config.max_positions, kLongest) : kLongest) / kLengthStep;
  const auto fits = [&](int64_t steps) {
    layout.seq_length = steps * kLengthStep;
    const int64_t peak = predict(config, layout).most().peak_total;
    if (peak > device_memory) return false;
    longest.length = layout.seq_length, longest.peak = peak;
    return true;
  };
  int64_t good = 0, bad = std::min<int64_t>(1, most);
  while (bad > good && fits(bad)) {
    good = bad;
    bad = std::min(2 * bad, most);
  }
  longest.by_positions = learned && good == most;
  while (bad - good > std::max<int64_t>(1, good / 16)) {
    const int64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return longest;
}

}  // namespace

std::vector<LongestSequence> longest_sequences(const ModelConfig& config, const Layout& layout, int64_t device_memory) {
  std::vector<LongestSequence> all;
  const int shared = layout.ranks / layout.tensor_ranks / layout.stages();
  for (int ranks = 1; ranks <= shared; ranks *= 2) {
    Layout each = layout;
    each.context_ranks = ranks;
    if (shared % ranks != 0 || !can_share(config, each)) continue;
    LongestSequence& longest = all.emplace_back(longest_at(config, each, device_memory));
    if (layout.recompute.mlp_tiles != 1 || !config.has_mlp()) continue;
    each.recompute.mlp_tiles = 0;
    longest.tiled = longest.by_positions ? longest.length : longest_at(config, each, device_memory).length;
  }
  return all;
}

}  // namespace nought
