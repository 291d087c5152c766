// Advice as flags: the --set of a command line that turns a run into one that fits.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "nought/config/run_plan.h"
#include "nought/plan/predict.h"

namespace nought {

/// Resolves the run anew, with settings "KEY=VALUE" behind those that it has. ConfigError if they contradict the run.
using RunWith = std::function<RunPlan(const std::vector<std::string>& settings)>;

/// The settings that make a run of the layout `from` one of the layout `to`, which advice has found. What a run wrote
/// in one of two places, or contradicts, is set where it counts: several ways are tried with run_with() until one gives
/// the batch and passes `fits`. folder: for states in files, where the run names none. Nothing if no way does.
std::optional<std::vector<std::string>> settings_of(const Layout& from, const Layout& to, const std::string& folder,
                                                    const RunWith& run_with,
                                                    const std::function<bool(const RunPlan&)>& fits);

/// "--set a=b --set c=d", as a shell takes it.
std::string flags_of(const std::vector<std::string>& settings);

}  // namespace nought
