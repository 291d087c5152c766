// What is said when a collective does not end: the states of all ranks are gathered without the help of MPI, from the
// memory of the ranks of this host and from files of those of others, and one rank tells them.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "nought/comm/flight_files.h"

namespace nought {

/// Who is to blame, a table of all ranks, and where their files are. The first rank of a job that calls it tells; the
/// others wait for a moment, in which the end of the first usually ends them, and name it.
std::string explain_timeout(const FlightRecorder& recorder);
/// The first call that two ranks issued differently, as far as they are in reach; "" if there is none.
std::string explain_mismatch(const FlightRecorder& recorder);

/// Writes the files of this host's ranks when a rank of another host asks for them, which it does by a file in the
/// folder. The thread looks for it a few times in a second.
class FlightWatch {
 public:
  FlightWatch(const FlightRecorder& recorder, std::filesystem::path folder);
  ~FlightWatch();
  FlightWatch(const FlightWatch&) = delete;
  FlightWatch& operator=(const FlightWatch&) = delete;

 private:
  void watch();

  const FlightRecorder& recorder_;
  std::filesystem::path folder_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;
};

/// While it lives, the folder gets this rank's file on a time-out, on a crash and on SIGUSR2. It does nothing in a
/// group that records nothing. All ranks of the world make it together.
class FlightFolder {
 public:
  FlightFolder(Communicator& ranks, const std::filesystem::path& folder);
  ~FlightFolder() = default;
  FlightFolder(const FlightFolder&) = delete;
  FlightFolder& operator=(const FlightFolder&) = delete;

 private:
  FlightRecorder* recorder_;
  std::optional<FlightSignals> signals_;
  std::optional<FlightWatch> watch_;  // where some ranks are out of reach
};

}  // namespace nought
