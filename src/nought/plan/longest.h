// longest_sequences(): how long sequences may be in a budget, if more ranks share each of them.
#pragma once

#include <optional>
#include <vector>

#include "nought/plan/predict.h"

namespace nought {

struct LongestSequence {
  int context_ranks = 1;
  int64_t length = 0;         // tokens, a multiple of kLengthStep; 0: not even so many fit
  bool by_positions = false;  // it is as many as the model has learned positions for: the budget has room for more
  int64_t peak = 0;           // predicted bytes of a rank at that length
  std::optional<int64_t> tiled = {};  // the length with training.tiled_mlp, if the run is without it
};
inline constexpr int64_t kLengthStep = 256;   // tokens
inline constexpr int64_t kLongest = 1 << 26;  // nobody looks further

/// One for each number of ranks that can share sequences, 1 first, in a run that is otherwise as `layout`: of the same
/// ranks, fewer read different samples. Lengths are exact to a sixteenth.
std::vector<LongestSequence> longest_sequences(const ModelConfig& config, const Layout& layout, int64_t device_memory);

}  // namespace nought
