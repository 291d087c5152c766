#include "nought/parallel/context_ranks.h"

#include <algorithm>

namespace nought {

int64_t ContextTokens::most_tokens() const {
  int64_t most = 0;
  for (int rank = 0; rank < ranks.ranks; ++rank) most = std::max(most, tokens(rank));
  return most;
}

std::vector<int32_t> ContextTokens::indices(int rank) const {
  std::vector<int32_t> all;
  all.reserve(static_cast<size_t>(tokens(rank)));
  for (int64_t row = 0; row < rows; ++row)
    for (const Interval& held : held_by(rank))
      for (int64_t position = held.begin; position < held.end; ++position)
        all.push_back(static_cast<int32_t>(row * length + position));
  return all;
}

}  // namespace nought
