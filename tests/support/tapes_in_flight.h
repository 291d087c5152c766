// tapes_in_flight(): what a schedule keeps alive.
#pragma once

#include <algorithm>
#include <set>
#include <utility>

#include "nought/engine/step_schedule.h"

namespace nought::test {

/// The most tapes that are alive at once, pairs of a micro-batch and a chunk: begun, and not at their end.
inline int64_t tapes_in_flight(const StepSchedule& schedule) {
  std::set<std::pair<int64_t, int64_t>> alive;
  size_t most = 0;
  for (size_t place = 0; place < schedule.instructions().size(); ++place) {
    const Instruction& each = schedule.instructions()[place];
    if (!has_micro_batch(each.action)) continue;
    if (each.action == Action::forward) alive.insert({each.micro_batch, each.chunk});
    most = std::max(most, alive.size());
    if (schedule.end_of(each.micro_batch, each.chunk) == static_cast<int64_t>(place))
      alive.erase({each.micro_batch, each.chunk});
  }
  return static_cast<int64_t>(most);
}

}  // namespace nought::test
