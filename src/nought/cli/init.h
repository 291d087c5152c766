// What `nought init` asks of the data and the model, so that the run that it writes starts.
#pragma once

#include <filesystem>
#include <string>

#include "nought/cli/run_file.h"
#include "nought/config/run_plan.h"

namespace nought {

/// The answers with what lets the run start: a chat template, sequences that have room for conversations and of which
/// there are enough for a step, and at least one to validate with. `data` and the paths hold from the current
/// directory. IoError and ConfigError for a model or data that are not there, and what training would refuse.
InitAnswers suit_to_data(InitAnswers answers, const DataPlan& data, const std::filesystem::path& model);

/// `path`, which holds from the current directory, as it is written in `run_file`. What is not there stays as it is.
std::string relative_to_run_file(const std::string& path, const std::string& run_file);

}  // namespace nought
