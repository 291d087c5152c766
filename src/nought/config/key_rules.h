// KeyRule: what happens to a key that is known and not implemented. The tables are ds_key_rules() for ds_config.json
// and training_rules() for Hugging Face's TrainingArguments.
#pragma once

#include <string>
#include <string_view>

#include "nought/base/json_fwd.h"

namespace nought {

/// What happens if a known key that is not implemented has a value other than its default.
enum class KeyStatus {
  no_effect,  // a warning; results and memory do not depend on the key
  refused,    // an error
  enabled,    // the key is a free-form section: an error if it contains "enabled": true
  gated,      // nothing; another key of the section, which has a rule of its own, decides whether the section counts
};

struct KeyRule {
  std::string_view path;      // "zero_optimization.reduce_bucket_size"; "a.*" = everything inside a
  std::string_view defaults;  // JSON values that are accepted silently, separated by " | "
  KeyStatus status;
  std::string_view reason;
  std::string_view on_gpu = {};  // the reason where ranks compute on GPUs, if it is another one
};

/// What a rule says of a value: an error or a warning, or neither.
struct Judgement {
  std::string mistake = {}, warning = {};
};

/// `place` names the key in both. null counts as not given. "auto" is accepted for every key that is not refused.
/// ConfigError for a value of another kind than the default.
Judgement judge(const Json& value, const KeyRule& rule, const std::string& place, bool on_gpu = false);

/// True for keys that people write for people: "_comment", "//", "notes".
bool is_note(std::string_view key);

}  // namespace nought
