// What is in a checkpoint, for people: by its manifest and the sizes of its files; no tensor is read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>

#include "nought/checkpoint/checkpoint.h"

namespace nought {

struct CheckpointContents {
  std::string format;  // "nought-checkpoint-3"
  CheckpointInfo info;
  std::set<std::string> states;  // "master", "exp_avg": what is kept of parameters
  int64_t parameters = 0;        // elements
  int64_t frozen = 0;            // elements that are not trained
  int64_t files = 0, bytes = 0;  // those of the states alone
};

/// IoError if the checkpoint cannot be read.
CheckpointContents contents_of(const std::filesystem::path& checkpoint);

}  // namespace nought
