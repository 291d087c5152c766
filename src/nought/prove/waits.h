// Whether ranks can wait for each other in a circle.
//
// Design goals: one run of the transcripts decides for all runs. No call has a choice of what it meets, so the order in
// which ranks come does not change what meets what; and no message has room to wait in: a send ends when its receiver
// has come to it, though real ones may end before. Each group has a stream of its own, on which its calls run in order.
// What classes of ranks do stands for all: a circle of ranks would be one of their classes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nought/prove/transcript.h"

namespace nought {

struct WaitGraph {
  int64_t calls = 0, waits = 0;               // that were followed, of all classes
  std::optional<Counterexample> circle = {};  // the shortest one
};

/// The calls meet (find_mismatch()).
WaitGraph follow_waits(const RecordedRanks& ranks);

}  // namespace nought
