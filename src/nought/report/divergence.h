// find_divergence(): between which steps two runs became different, by what lies in their output folders: losses and
// norms of metrics.jsonl, and the checksums of checkpoints.
//
// A step differs if its loss or its gradient norm does, or what is saved after it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "nought/report/run_folder.h"

namespace nought {

struct RunDivergence {
  int64_t equal = 0;                      // checkpoints of this step are the same; 0: only the start is
  std::optional<int64_t> different = {};  // the first step that is known to differ; nothing: none is
  std::string how = {};                   // what differs there: "loss 3.1 and 3.2", "master/model.norm.weight"
  int64_t steps = 0;                      // whose losses both have
  int64_t checkpoints = 0;                // that were compared
  int64_t incomparable = 0;               // checkpoints of the same step that are cut for different layouts
};

/// IoError for a manifest that cannot be read.
RunDivergence find_divergence(const RunFolder& first, const RunFolder& other);

/// The first step of both whose loss or norm differs in a bit, and how.
struct LossDifference {
  int64_t step = 0;
  std::string how;
};
std::optional<LossDifference> first_difference(const StepTable& first, const StepTable& other);

}  // namespace nought
