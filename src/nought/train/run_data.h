// RunData: the data sections of a plan, opened: what a run trains on, and what it validates with.
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
/// Throws what open_data would throw for files that are missing or are no token files of this tokenizer, without
/// reading any text.
void check_data(const DataPlan& plan, const Tokenizer& tokenizer);

}  // namespace nought
