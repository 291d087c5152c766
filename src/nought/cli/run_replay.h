// replay_run(): makes some steps of a recorded run again, in another folder, with checkpoints on the way.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "nought/report/run_folder.h"

namespace nought {

struct ReplaySteps {
  int64_t from = 0;                        // the checkpoint that it begins with; 0: the run's start
  int64_t to = 0;                          // the replay ends as soon as this step is saved
  int64_t every = 1;                       // steps between checkpoints
  int ranks = 0;                           // 0: as many as the run had. Others make the same global batch
  std::vector<std::string> settings = {};  // more values of --set
};

/// Starts the program again as run_record.json tells it, from the run's own checkpoint, writing to `folder`; asks it to
/// stop when the last step is saved. Returns the signal by which the user ended it, or 0. ConfigError where the record
/// does not say how the run was started; IoError, with its last words, for a replay that fails.
int replay_run(const RunFolder& run, const ReplaySteps& steps, const std::filesystem::path& folder);

}  // namespace nought
