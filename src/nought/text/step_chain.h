// The chains of steps in a tokenizer.json: its normalizer, pre-tokenizer and decoder.
//
// A tokenizer may come from anybody. A few steps that each double a text would fill any memory, so a chain has a
// bounded number of steps, each writes short texts, and the text at its end is bounded by the one at its start.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "nought/text/json_view.h"

namespace nought {

/// Calls add(step, type) for the step that `json` describes, or for each step of a Sequence, whose list is called
/// `list_key`, in their order; for none if it is null. ConfigError for more than 64 steps and for Sequences that nest
/// deeper than 4 levels.
void for_each_step(const JsonView& json, std::string_view list_key,
                   const std::function<void(const JsonView& step, const std::string& type)>& add);

/// The text that a step writes in place of what it finds. ConfigError if it is longer than 64 bytes or no UTF-8.
std::string replacement_text(const JsonView& json);

/// How long a text may become on its way through a chain: 16 times its length and 64 KiB. The longest expansion of
/// Unicode's normal forms is 11 times.
class GrowthLimit {
 public:
  explicit GrowthLimit(size_t bytes) : before_(bytes) {}
  /// ConfigError if that is too long. `chain` says which chain made the text ("the normalizers").
  void check(size_t bytes, std::string_view chain) const;

 private:
  size_t before_;
};

}  // namespace nought
