// What tests of resolve() share: a plan, or the error, from the text of a RUN.json.
#pragma once

#include "nought/config/run_config.h"
#include "nought/config/run_plan.h"

namespace nought {

inline RunPlan plan_of(std::string_view text, int world_size = 1, const std::vector<std::string>& overrides = {}) {
  return resolve(make_run_config(parse_json(text, "RUN.json"), "RUN.json", overrides), world_size);
}

inline std::string error_of(std::string_view text, int world_size = 1, const std::vector<std::string>& overrides = {}) {
  try {
    plan_of(text, world_size, overrides);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "(no error)";
}

inline std::string reason_of(const RunPlan& plan, std::string_view key) {
  for (const Resolved& row : plan.resolved)
    if (row.key == key) return row.reason;
  return "(no such row)";
}

inline std::string value_of(const RunPlan& plan, std::string_view key) {
  for (const Resolved& row : plan.resolved)
    if (row.key == key) return row.value;
  return "(no such row)";
}

inline AdamOptions adam_of(const RunPlan& plan) { return std::get<AdamOptions>(plan.optimizer.method); }

}  // namespace nought
