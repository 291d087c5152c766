// The reference of all keys of a run, made from the code that reads them. `nought config` and docs/config.md show it.
#pragma once

#include <string>
#include <vector>

namespace nought {

/// What Nought does with a key.
enum class KeyUse {
  implemented,
  no_effect,  // the key is accepted; a value other than `fallback` gives a warning, whose reason is in `help`
  refused,    // a value other than `fallback` is an error, whose reason is in `help`
};

struct ConfigEntry {
  std::string path;      // "training.max_steps", "deepspeed.zero_optimization.stage"
  std::string type;      // "an integer"; "" unless the key is implemented
  std::string fallback;  // implemented: the default as JSON; else: the values that are silently accepted; "" = none
  std::string help;
  KeyUse use = KeyUse::implemented;
};

/// All keys of RUN.json, then the TrainingArguments that have no effect or are refused, then all of DeepSpeed's
/// ds_config.json.
std::vector<ConfigEntry> config_reference();

/// The entries whose path, values or help contain `filter` (ignoring case); all entries if it is empty. Implemented
/// keys come first, and among them those whose name is or contains the filter.
std::string config_text(const std::string& filter);

/// The content of docs/config.md.
std::string config_markdown();

}  // namespace nought
