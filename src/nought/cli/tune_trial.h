// One trial of `nought tune`: a short run as a process of its own, and what became of it.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "nought/base/json.h"
#include "nought/cli/child_process.h"

namespace nought {

struct TuneTrial {
  std::vector<std::string> settings;  // "training.recompute=full", beside those of the run
  double tokens_per_second = 0;       // the median of its steps behind the first ones; 0: it failed
  double noise = 0;                   // half of the spread of the middle half of these, relative
  std::string message;                // why it failed

  std::string key() const;
  OrderedJson json() const;
  static TuneTrial from(const Json& json);
};

struct TrialCommand {
  std::vector<std::string> arguments;  // `nought` gets these, and what a trial adds
  std::filesystem::path folder;        // its output, log and metrics
  int64_t steps = 8;                   // the first kSettling of them are not counted
  std::chrono::duration<double> limit{};
};
inline constexpr int64_t kSettling = 3;

/// Runs the trial. A run that fails, is killed, or is not done within `limit` is a trial with a message. `asked`: the
/// signal that asked this process to end meanwhile, else 0; the trial's processes are gone then.
TuneTrial run_trial(const TrialCommand& command, std::vector<std::string> settings, const EndingSignals& signals,
                    int& asked);

}  // namespace nought
