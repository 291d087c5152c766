// The fields of Hugging Face's TrainingArguments that `training` does not implement: each has no effect here, or is
// refused with its reason.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nought/base/json.h"
#include "nought/config/key_rules.h"

namespace nought {

/// The fields of TrainingArguments in transformers 5.23, in their order there.
std::span<const std::string_view> training_arguments();

/// Fields that have another name here, and that name: what they say is read under it.
std::span<const std::pair<std::string_view, std::string_view>> training_aliases();

/// The rules of those that are not implemented, and of older ones that are still met. `path` is the field's name.
std::span<const KeyRule> training_rules();

/// Takes out of the section `training` what has a rule. A line is added to `warnings` for each field without effect.
/// What transformers writes in another way is rewritten: warmup_steps below 1 is warmup_ratio. Returns one line for
/// each field that is refused. on_gpu: ranks compute on GPUs.
std::vector<std::string> apply_training_rules(Json& training, const Origins& origins,
                                              std::vector<std::string>& warnings, bool on_gpu = false);

}  // namespace nought
