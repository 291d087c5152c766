#include "nought/infer/drafter.h"

#include <algorithm>

namespace nought {

std::vector<int32_t> look_up_continuation(std::span<const int32_t> ids, int64_t most) {
  const auto count = std::ssize(ids);
  const auto at = [&](int64_t index) { return ids[static_cast<size_t>(index)]; };
  // Where the best earlier occurrence ends, and how many tokens it has.
  int64_t begin = count, longest = kShortestMatch - 1;
  for (int64_t end = count - 1; end >= kShortestMatch && longest < kLongestMatch; --end) {
    int64_t length = 0;
    while (length < std::min(end, kLongestMatch) && at(end - 1 - length) == at(count - 1 - length)) ++length;
    if (length > longest) begin = end, longest = length;
  }
  std::vector<int32_t> guess;
  if (begin == count) return guess;
  while (std::ssize(guess) < most) {
    const int64_t from = begin + std::ssize(guess);
    guess.push_back(from < count ? at(from) : guess[static_cast<size_t>(from - count)]);
  }
  return guess;
}

std::vector<std::vector<int32_t>> LookupDrafter::guess(std::span<const DraftRequest> requests) {
  std::vector<std::vector<int32_t>> guesses;
  for (const DraftRequest& each : requests) guesses.push_back(look_up_continuation(each.ids, each.most));
  return guesses;
}

}  // namespace nought
