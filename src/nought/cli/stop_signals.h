// StopSignals: the first SIGINT, SIGTERM or SIGUSR1 asks a run to stop after its step; a second one ends the process at
// once.
//
// SIGUSR1 is what Slurm sends before a job's time is over (sbatch --signal=USR1@120), and the only one of them that
// mpirun passes on to its ranks. A signal that comes within half a second of the first is the same wish: some senders,
// such as timeout(1), signal a process and then its group.
#pragma once

#include <array>
#include <chrono>
#include <csignal>

namespace nought {

/// Signals this close to each other are one wish.
inline constexpr std::chrono::milliseconds kOneWish{500};

/// A run that was asked to stop and stands still for so long is ended.
inline constexpr std::chrono::seconds kStandstill{30};

/// What is said when a signal asks a run to stop.
inline constexpr const char* kStopWord = "nought: stopping after this step; a second signal ends the run at once\n";

/// While an object of this lives. There is one at a time.
class StopSignals {
 public:
  /// announce: whether the first signal writes kStopWord to stderr.
  explicit StopSignals(bool announce);
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();
  /// The first signal that came, or 0.
  static int asked();

 private:
  static constexpr std::array<int, 3> kSignals{SIGINT, SIGTERM, SIGUSR1};
  std::array<struct sigaction, kSignals.size()> before_{};
};

/// What a server of several ranks says when a signal asks it to stop.
inline constexpr const char* kDrainWord =
    "nought: stopping when the answers have ended; a second signal ends them at once\n";

/// The exit code of a program that a signal ended: 130 for SIGINT, 143 for SIGTERM, 138 for SIGUSR1.
constexpr int exit_code_of(int signal) { return 128 + signal; }

}  // namespace nought
