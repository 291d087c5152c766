// RunData: the datasets of a plan: the one that a run trains on, and the one that it validates with.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nought/config/run_plan.h"
#include "nought/data/dataset.h"

namespace nought {

struct RunData {
  TokenDataset training;
  std::optional<TokenDataset> validation;
  std::vector<std::string> notes = {};  // what was found in files that are not plain text
  std::vector<int32_t> stop_ids = {};   // that end an answer, the template's own before the one that ends a document
  std::string chat_template = {};       // see TokenizerExport
  std::vector<std::pair<std::string, std::string>> specials = {};  // the same
};

/// The tokenizer of a plan, with the tokens that it adds.
std::unique_ptr<Tokenizer> tokenizer_of(const DataPlan& plan);
/// Encodes text files and maps token files. IoError and ConfigError name the file.
RunData open_data(const DataPlan& plan, const Tokenizer& tokenizer);
/// Checks the files; of .jsonl files their first lines alone. Throws what open_data() would throw for a missing file, a
/// token file of another tokenizer, or conversations without a notation.
void check_data(const DataPlan& plan, const Tokenizer& tokenizer);

}  // namespace nought
