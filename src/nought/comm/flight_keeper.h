// FlightKeeper: pages of the flight recorder that a process holds which outlives the ranks of its host.
//
// A rank whose launcher is supervised writes on such a page in place of one of its own. So the supervisor sees whether
// ranks get on, and what they did last when they are gone.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nought/comm/flight_page.h"

namespace nought {

/// The environment variable that tells ranks of their keeper: "HOST:PID:DESCRIPTOR,DESCRIPTOR,...", by rank.
inline constexpr const char* kFlightKeeperVariable = "NOUGHT_FLIGHT_KEEPER";

class FlightKeeper {
 public:
  /// Makes a page for each rank; fewer where the system refuses more.
  explicit FlightKeeper(int ranks);
  ~FlightKeeper();
  FlightKeeper(const FlightKeeper&) = delete;
  FlightKeeper& operator=(const FlightKeeper&) = delete;

  /// What the ranks' environment needs: "NAME=value".
  std::string variable() const;
  /// A number that grows while any rank of this host gets on; 0: no rank has begun.
  uint64_t progress() const;
  /// The step that the ranks of this host make, the latest; 0: none has begun one.
  int64_t step() const;
  /// The first rank of this host that is dead or stopped, or -1.
  int lost_rank() const;
  /// What a rank does, as people read it: "rank 1 (pid 123) is stopped, in forward, step 7"; "" for one that never
  /// came.
  std::string describe(int rank) const;

 private:
  std::vector<int> descriptors_;
  std::vector<std::shared_ptr<FlightPage>> pages_;
};

/// How long the ranks of a keeper have stood still.
class StandstillWatch {
 public:
  using Clock = std::chrono::steady_clock;
  explicit StandstillWatch(const FlightKeeper& keeper) : keeper_(keeper) {}
  /// To be asked again and again: it sees what changed since it was asked last.
  Clock::duration standstill();
  /// Whether a rank of this host has begun; those of other hosts are not seen.
  bool begun() const { return progress_ > 0; }

 private:
  const FlightKeeper& keeper_;
  uint64_t progress_ = 0;
  Clock::time_point moved_ = Clock::now();
};

/// A descriptor of the page that a keeper of this host holds for the rank, or -1.
int open_kept_page(int rank);

}  // namespace nought
