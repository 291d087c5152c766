// What one setting of another program says in the terms of a RUN.json.
//
// Non-goals: whether the reader of RUN.json accepts it, and what several settings mean together (foreign_run.h).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nought/base/json.h"
#include "nought/config/foreign_settings.h"

namespace nought {

struct ForeignMeaning {
  std::vector<std::pair<std::string, Json>> says;  // paths and values
  std::vector<std::string> missing;                // why something has no counterpart
  std::vector<std::string> not_needed;             // why something needs none
  std::optional<bool> adapts;                      // whether the run trains an adapter
};

ForeignMeaning meaning_of(const ForeignSettings& settings, const ForeignSetting& setting);

/// Whether a value asks for nothing: false, 0, an empty text or list.
bool asks_nothing(const Json& value);

}  // namespace nought
