// TranscriptRecorder: writes down what a rank of a dry run asks of the others, and what it holds when a part of the run
// begins.
#pragma once

#include <array>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "nought/comm/flight_recorder.h"
#include "nought/comm/grid.h"
#include "nought/plan/dry_run_rank.h"
#include "nought/prove/state_intervals.h"
#include "nought/prove/transcript.h"

namespace nought {

/// What a rank holds between two parts of a run.
struct HeldBetween {
  std::string before;  // the part that begins: "step 2"
  std::array<std::array<int64_t, kNumCategories>, kNumPools> bytes{};
  std::vector<std::string> leased;  // Units that are whole though nobody computes with them
};

/// When a dry run is given up.
using Deadline = std::chrono::steady_clock::time_point;

/// A dry run was not done by its deadline.
class DeadlinePassed final : public std::exception {
 public:
  const char* what() const noexcept override { return "a dry run was not done by its deadline"; }
};

class TranscriptRecorder final : public DryRunWatch {
 public:
  /// with_frozen: a checkpoint holds frozen parameters. A part of the run that would begin behind the deadline is
  /// DeadlinePassed.
  TranscriptRecorder(const Grid& grid, int rank, bool with_frozen = true, Deadline deadline = Deadline::max());

  std::unique_ptr<Communicator> watched(std::unique_ptr<Communicator> group, const std::vector<int>& ranks) override;
  const StateSource& states() override { return asked_; }
  void enters(std::string_view part, DryRunRank& rank) override;

  /// What was recorded; the dry run has ended.
  Transcript take() { return std::move(transcript_); }
  const std::vector<HeldBetween>& held() const { return held_; }
  /// What it read when it began, and what it would write to a checkpoint in the end.
  StateIntervals take_asked() { return asked_.take(); }
  StateIntervals take_saved() { return std::move(saved_); }

  // For the communicators that it makes:
  /// A call is issued; returns its number.
  int call(TranscriptCall call);
  void wait(int call);
  void follow(int group, int call);
  FlightRecorder& flight() { return flight_; }

 private:
  std::string name_of_group(const std::vector<int>& ranks) const;
  int place_now();

  Grid grid_;
  bool with_frozen_;
  Deadline deadline_;
  FlightRecorder flight_;
  Transcript transcript_;
  std::vector<HeldBetween> held_;
  AskedStates asked_;
  StateIntervals saved_;
  std::string part_ = "start";
  int64_t steps_ = 0;
  std::mutex mutex_;  // a thread that runs during the passes may issue the calls of a group of its own
};

}  // namespace nought
