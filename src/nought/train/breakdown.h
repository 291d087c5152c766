// Where the time of a step went, from its timeline: phases, communication, and how much of it was hidden.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "nought/tensor/timeline.h"

namespace nought {

/// Seconds of one rank. Phases are as long as the computing thread was in them, waiting included.
struct StepBreakdown {
  double forward = 0, backward = 0;
  double optimizer = 0;      // the last reductions, the norm, the update
  double communication = 0;  // that the communication stream was busy, waiting for other ranks included
  double exposed = 0;        // of it, while the computing thread waited for it

  /// The part of the communication that went on behind computation; 1 without any.
  double hidden() const { return communication > 0 ? 1 - exposed / communication : 1; }
};
StepBreakdown breakdown_of(std::span<const TraceEvent> events);

/// The collectives among the events. `only`: names, all if empty.
std::vector<TraceEvent> collectives_of(std::span<const TraceEvent> events, const std::vector<std::string>& only);

/// All collectives of one name and size.
struct CollectiveTotal {
  std::string name;
  int64_t bytes = 0;  // of the whole tensor
  int64_t calls = 0;
  double seconds = 0;
};
/// Adds the collectives of a step, sorted by name and size.
void add_collectives(std::span<const TraceEvent> collectives, std::vector<CollectiveTotal>& totals);

}  // namespace nought
