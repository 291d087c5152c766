// The breakdown of a step's time, from its trace events: phases, communication, and how much of that was hidden.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "nought/tensor/timeline.h"

namespace nought {

/// Seconds of one rank. The time of a phase is that of the computing thread, waiting included.
struct StepBreakdown {
  double forward = 0, backward = 0;
  double optimizer = 0;        // the last reductions, the norm and the update
  double communication = 0;    // how long the communication stream was busy, waiting for other ranks included
  double exposed = 0;          // how long the computing thread waited meanwhile
  double data = 0;             // reading the samples
  double offload = 0;          // how long what is offloaded was on its way from or to files
  double offload_exposed = 0;  // how long the computing thread waited for it, or for an update overlapped with its work
  double forward_waits = 0, backward_waits = 0;  // parts of these phases in which the computing thread waited

  /// The fraction of the communication that ran while the computing thread did not wait; 1 if there was none.
  double hidden() const { return communication > 0 ? 1 - exposed / communication : 1; }
  /// The hidden fraction of what is offloaded, at least.
  double offload_hidden() const { return offload > 0 ? std::max(0.0, 1 - offload_exposed / offload) : 1; }
};
/// The breakdown of the step that the events belong to.
StepBreakdown breakdown_of(std::span<const TraceEvent> events);

/// The collectives among the events whose names are in `only`; all of them if that is empty.
std::vector<TraceEvent> collectives_of(std::span<const TraceEvent> events, const std::vector<std::string>& only);

/// The sum over all calls of one collective with one size.
struct CollectiveTotal {
  std::string name;
  int64_t bytes = 0;  // the size of the whole tensor
  int64_t calls = 0;
  double seconds = 0;
};
/// Adds the collectives of a step to `totals`, which are sorted by name and size.
void add_collectives(std::span<const TraceEvent> collectives, std::vector<CollectiveTotal>& totals);

}  // namespace nought
