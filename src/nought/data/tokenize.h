// tokenize: text files into a folder of token files, by several threads, so that an interrupted run goes on.
//
// The bytes depend on the input, the tokenizer and the options alone. Finished token files are kept: a run that was
// killed and is started again continues behind them. The input that they were made from is recognized by its content.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "nought/data/corpus.h"

namespace nought {

struct TokenizeOptions {
  std::vector<std::filesystem::path> inputs;
  CorpusOptions corpus;
  std::filesystem::path output;  // a folder
  int threads = 1;
  int64_t file_tokens = int64_t{1} << 26;  // a token file ends with the portion that reaches so many
  bool overwrite = false;                  // remove what another run left in the folder
};

struct TokenizeProgress {
  int64_t bytes = 0, total_bytes = 0;  // of the input
  int64_t tokens = 0, documents = 0, targets = 0, files = 0;
  int64_t kept_bytes = 0;  // of the input, whose token files were there already
  double seconds = 0;
};

/// Called now and then, and at the end.
using TokenizeObserver = std::function<void(const TokenizeProgress&)>;

/// Writes the folder. ConfigError for a bad line, which names file and line, or if the folder holds other tokens;
/// IoError.
TokenizeProgress tokenize(const TokenizeOptions& options, const Tokenizer& tokenizer, const TokenizeObserver& observer);

}  // namespace nought
