// What the paths of a RUN.json are relative to: those of model, data, alignment and deepspeed to the file
// itself.
//
// Non-goals: training.output_dir, flags and --set, which are relative to the current directory.
#pragma once

#include <string>
#include <vector>

#include "nought/base/json_fwd.h"

namespace nought {

/// Rewrites the paths of model, data, alignment and deepspeed in the content of `run_file` so that they hold from the
/// current directory. What is there only from the current directory is taken from there, with a line in `warnings`.
/// Names that are nowhere stay as they are if they may stand for something else (a tokenizer's name, a model of a hub).
void anchor_paths(Json& run, const std::string& run_file, std::vector<std::string>& warnings);

}  // namespace nought
