// `nought init --from FILE`: a RUN.json with comments from the settings of another program.
#pragma once

#include <string>

#include "nought/config/foreign_run.h"

namespace nought {

/// The text of `run_file`: each key with the place that said it, and what has no counterpart.
std::string foreign_run_text(const TranslatedRun& run, const ForeignSettings& settings, const std::string& run_file);

/// What is said of it on the terminal: what was taken, what has no counterpart, and what to do next.
std::string foreign_run_report(const TranslatedRun& run, const ForeignSettings& settings, const std::string& run_file);

}  // namespace nought
