// The config of Hugging Face's accelerate, as `accelerate config` writes it: what it says of a run, as a
// ds_config.json.
//
// It stands wherever the path of a ds_config.json may. What belongs to launching (machines, ports, processes) is not
// taken: mpirun starts ranks here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nought/base/json.h"

namespace nought {

struct AccelerateConfig {
  Json deepspeed = Json::object();    // as a ds_config.json has it
  Json parallelism = Json::object();  // as training.parallelism_config has it
  std::vector<std::string> warnings;  // one line for each key that is known and not taken
  int64_t num_processes = 0;          // 0 = not given
};

/// Whether the content of a file is a config of accelerate and not a ds_config.json.
bool is_accelerate_config(const Json& json);

/// The place of a key of training.parallelism_config in `file`, which spells it with the section's name in front.
std::string accelerate_place(const std::string& file, const std::string& key);

/// Translates the content of `file`, and of the ds_config.json that it may name by a path relative to it. `origins`
/// learns where each value below "deepspeed" was written. ConfigError for what can not be followed: other ways to share
/// out a model, unknown keys, keys beside deepspeed_config_file.
AccelerateConfig read_accelerate_config(const Json& json, const std::string& file, Origins& origins);

}  // namespace nought
