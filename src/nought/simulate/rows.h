// Published rows: step times with their layouts, and what simulate_step() says of them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nought/base/json.h"
#include "nought/simulate/step.h"

namespace nought {

struct SimulatedRow {
  std::string id;
  SimulatedStep step;
};

/// The rows of a file of the form of published.json: {"hardware", "models", "rows"}. ConfigError, in one line, for a
/// row without model or hardware, a size that is missing, ranks that its axes do not make, and a batch that its
/// micro-batches do not divide; `name` stands in front.
std::vector<SimulatedRow> simulate_rows(const Json& file, const std::string& name,
                                        const std::map<std::string, FittedConstants>& fitted);
/// {"rows": [{"id", "step_seconds", "parts": {name: seconds}}]}
OrderedJson to_json(const std::vector<SimulatedRow>& rows);

}  // namespace nought
