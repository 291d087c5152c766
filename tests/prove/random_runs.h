// random_run(): a RUN.json that somebody might write, by a seed: any family, mesh, ZeRO stage, precision, optimizer and
// way to save memory together. Many contradict themselves, and are refused.
#pragma once

#include <cstdint>

#include "support/temp_folder.h"

#include "nought/base/json.h"

namespace nought::test {

struct RandomRun {
  int ranks = 1;
  Json file;  // RUN.json
};

/// Two steps with a checkpoint after each, on data in the folder. The same seed gives the same run.
RandomRun random_run(uint64_t seed, const TempFolder& folder);

}  // namespace nought::test
