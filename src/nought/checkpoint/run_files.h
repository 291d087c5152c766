// The files that a run reads, by their hashes: a checkpoint keeps them, and a resumed run says which have changed.
#pragma once

#include <string>
#include <vector>

#include "nought/base/json_fwd.h"
#include "nought/config/run_plan.h"

namespace nought {

/// "a.txt, b.txt, c.txt and 4 more".
std::string some_of(const std::vector<std::string>& names);

/// The paths of the files that every rank of the run opens: data, model, tokenizer, configuration. ConfigError,
/// IoError.
std::vector<std::string> files_of_run(const RunPlan& plan);

/// The hash of the content of each file of data and configuration: {"a.txt": "0123456789abcdef"}. Text is read whole;
/// a token file's header has the hash. Many data files stand in one line per folder. IoError, ConfigError.
Json hash_run_files(const RunPlan& plan);

/// What differs: "changed since the checkpoint: run.json; not read before the checkpoint: b.txt; not read any more:
/// c.txt", or "". null stands for a checkpoint that does not tell, of which nothing is said.
std::string describe_changed_files(const Json& then, const Json& now);

}  // namespace nought
