// Files of the flight recorder: a page of each rank, "rank-3.flight", which `nought trace` reads.
#pragma once

#include <array>
#include <csignal>
#include <filesystem>
#include <string>

#include "nought/comm/flight_recorder.h"

namespace nought {

std::filesystem::path flight_file(const std::filesystem::path& folder, int rank);

/// Writes the page of a rank of this host, whatever became of its process, and makes the folder. Returns whether the
/// file is there: a time-out has more to tell than that a disk is full.
bool write_flight_file(const FlightPage& page, const std::filesystem::path& folder);
/// IoError for a file that is no page.
FlightSnapshot read_flight_file(const std::filesystem::path& file);

/// While it lives, this process writes its file when it crashes (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT) and on
/// SIGUSR2, after which it goes on. Signals that were ignored stay so, and what handled a crash before still does.
/// There is one at a time.
class FlightSignals {
 public:
  FlightSignals(const FlightRecorder& recorder, const std::filesystem::path& folder);
  ~FlightSignals();
  FlightSignals(const FlightSignals&) = delete;
  FlightSignals& operator=(const FlightSignals&) = delete;

 private:
  static constexpr std::array<int, 6> kSignals{SIGUSR2, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
  std::shared_ptr<FlightPage> page_;
};

}  // namespace nought
