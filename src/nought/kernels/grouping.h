// Where the rows of each expert lie when tokens are grouped by expert (GroupByExpert of ops/moe.h): all backends and
// the host agree on it by these functions.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "nought/base/math.h"

namespace nought {

/// The rows of an expert's block: those of its tokens, and padding to a size that few other blocks have, so that few
/// products are compiled. At most 1/16 more rows than tokens, or 7 more; at most 16 sizes from one power of two to the
/// next.
constexpr int64_t padded_rows(int64_t tokens) {
  if (tokens == 0) return 0;
  const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(tokens)));
  return round_up(tokens, std::max<int64_t>(8, power / 16));
}

/// How many of its choices an expert takes. capacity 0: all.
constexpr int64_t taken_choices(int64_t count, int64_t capacity) {
  return capacity > 0 ? std::min(count, capacity) : count;
}

/// The block of each expert, padding included, one behind the other. counts: all choices of each expert.
template <class Int>
std::vector<Interval> expert_blocks(std::span<const Int> counts, int64_t capacity) {
  std::vector<Interval> blocks;
  blocks.reserve(counts.size());
  int64_t end = 0;
  for (const Int count : counts) {
    const int64_t begin = end;
    end += padded_rows(taken_choices(count, capacity));
    blocks.push_back({begin, end});
  }
  return blocks;
}

/// The most rows that all blocks together may have, however the choices are spread.
inline int64_t most_rows(int64_t choices, int64_t num_experts, int64_t capacity) {
  const int64_t unlimited = choices + choices / 16 + 7 * std::min(choices, num_experts);
  return capacity > 0 ? std::min(unlimited, num_experts * padded_rows(std::min(capacity, choices))) : unlimited;
}

}  // namespace nought
