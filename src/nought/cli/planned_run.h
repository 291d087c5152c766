// Runs that are planned and not started: of RUN.json, or of a model alone.
#pragma once

#include <string>
#include <vector>

#include "nought/config/run_config.h"

namespace nought {

/// A run of RUN.json; or of a model alone: a Hugging Face folder, its config.json, or a GGUF file, which is trained in
/// bf16 with micro-batches of one sequence unless `overrides` say otherwise. ConfigError and IoError as
/// load_run_config().
RunConfig load_planned_run(const std::string& path, const std::vector<std::string>& overrides, bool on_gpu);

}  // namespace nought
