// Every key that a run may have, as the code that reads it knows it: for `nought config` and docs/config.md.
#pragma once

#include <string>
#include <vector>

namespace nought {

/// What happens to a key.
enum class KeyUse {
  implemented,
  no_effect,  // accepted; another value than `fallback` is warned about, with the reason in `help`
  refused,    // another value than `fallback` is an error, with the reason in `help`
};

struct ConfigEntry {
  std::string path;      // "training.max_steps", "deepspeed.zero_optimization.stage"
  std::string type;      // "an integer"; "" for keys without effect or refused
  std::string fallback;  // its default as JSON; for the others the values that are accepted in silence; "" = none
  std::string help;
  KeyUse use = KeyUse::implemented;
};

/// All keys of RUN.json, then all of DeepSpeed's ds_config.json.
std::vector<ConfigEntry> config_reference();

/// The entries whose path or help contains `filter`, whatever the case; all if it is empty. One line each.
std::string config_text(const std::string& filter);

/// The whole of docs/config.md.
std::string config_markdown();

}  // namespace nought
