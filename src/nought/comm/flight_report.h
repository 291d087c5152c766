// What follows from the flight recorders of several ranks: who waits in what since when, who has not come and what it
// does instead, who issued another call, or that the data do not get through.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "nought/comm/flight_page.h"

namespace nought {

struct FlightReport {
  /// One line per rank, below a line of headings.
  std::vector<std::string> table;
  /// What is wrong, the most telling sentence first. Empty if no call waits for a rank.
  std::vector<std::string> findings;
};

/// The snapshots are of ranks of one job, in any order; ranks may be missing.
FlightReport flight_report(std::vector<FlightSnapshot> ranks);

/// "call 57 of world (all_gather of 12.0 MiB f32 for block.3, step 12)".
std::string describe_call(const FlightSnapshot& rank, const FlightCall& call);
/// The first call that the ranks of one group issued differently, as a sentence that names both; "" if there is none.
std::string describe_mismatch(std::span<const FlightSnapshot> ranks);

}  // namespace nought
