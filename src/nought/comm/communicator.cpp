#include "nought/comm/communicator.h"

namespace nought {

std::string_view name_of(Collective collective) {
  static constexpr std::array<std::string_view, kNumCollectives> kNames{
      "broadcast",      "reduce",     "all_reduce",   "gather", "all_gather", "scatter",
      "reduce_scatter", "all_to_all", "all_to_all_v", "send",   "recv",       "barrier"};
  return kNames[static_cast<size_t>(collective)];
}

int64_t Traffic::total_bytes() const {
  int64_t total = 0;
  for (const Count& count : counts) total += count.bytes;
  return total;
}

int64_t Traffic::total_elements() const {
  int64_t total = 0;
  for (const Count& count : counts) total += count.elements;
  return total;
}

}  // namespace nought
