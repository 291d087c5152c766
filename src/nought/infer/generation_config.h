// GenerationConfig: how a model wants its tokens drawn, by the generation_config.json of its folder.
//
// Non-goals: the tokens at which a reply ends, which ModelConfig has; lengths, which belong to a request.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "nought/infer/sampling.h"

namespace nought {

struct GenerationConfig {
  std::optional<double> temperature = {}, top_p = {}, min_p = {}, repetition_penalty = {};
  std::optional<int64_t> top_k = {};

  bool empty() const { return !temperature && !top_p && !min_p && !repetition_penalty && !top_k; }
};

/// The settings of the folder's generation_config.json; empty without that file. "do_sample": false is a temperature of
/// 0, and the settings of a draw have no meaning beside it. IoError and ConfigError name the file.
GenerationConfig read_generation_config(const std::filesystem::path& folder);

}  // namespace nought
