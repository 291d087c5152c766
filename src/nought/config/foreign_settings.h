// What another program's run was set to: a list of keys and values with their places, read from what that program was
// started with.
//
// Non-goals: what the keys mean (foreign_run.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "nought/base/json.h"

namespace nought {

enum class ForeignFormat {
  transformers,  // TrainingArguments, and what TRL adds, as JSON or YAML
  axolotl,
  llama_factory,
  command_line  // deepspeed, accelerate launch, torchrun, python
};

/// What users call a format.
std::string_view describe(ForeignFormat format);

struct ForeignSetting {
  std::string key;
  Json value;
  std::string place;      // "FILE:LINE"
  std::string text = {};  // command_line: the value as it was written
  bool computed = false;  // command_line: the shell would have to run something to know it
};

struct ForeignSettings {
  ForeignFormat format = ForeignFormat::transformers;
  std::string file;
  std::string script;                       // command_line: the program that is started
  std::vector<ForeignSetting> settings;     // in their order; what is null is left out
  std::map<std::string, size_t> lines;      // of keys inside of values, by their path: "datasets[0].path"
  std::vector<ForeignSetting> of_launcher;  // command_line: flags in front of the script

  /// "FILE:LINE" of a key inside of a value; of the value if that is not known.
  std::string place(const std::string& path) const;
};

/// Reads a file. ConfigError for what is none of the formats, with what it seems to be.
ForeignSettings read_foreign_settings(const std::string& file);

}  // namespace nought
