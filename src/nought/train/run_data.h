// RunData: the datasets of a plan: the one that a run trains on, and the one that it validates with.
#pragma once

#include <optional>

#include "nought/config/run_plan.h"
#include "nought/data/dataset.h"

namespace nought {

struct RunData {
  TokenDataset training;
  std::optional<TokenDataset> validation;
};

/// Encodes text files and maps token files. IoError and ConfigError name the file.
RunData open_data(const DataPlan& plan, const Tokenizer& tokenizer);
/// Checks the files without reading text. Throws what open_data() would throw for a missing file, or for a token file
/// of another tokenizer.
void check_data(const DataPlan& plan, const Tokenizer& tokenizer);

}  // namespace nought
