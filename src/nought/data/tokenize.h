// tokenize(): turns text files into a folder of token files, in several threads. An interrupted run can be continued.
//
// The bytes depend only on the input, the tokenizer and the options. Finished token files are kept. A run that was
// killed and is started again continues behind them, if the input that they were made from still has the same content.
// If that or the options changed, what an unfinished run left is removed, and what a finished one left is refused.
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
  std::filesystem::path output;  // the folder to write
  int threads = 1;
  int64_t file_tokens = int64_t{1} << 26;  // a token file ends with the portion that reaches this many tokens
  bool overwrite = false;                  // whether to remove what another run left in the folder
};

struct TokenizeProgress {
  int64_t bytes = 0, total_bytes = 0;  // bytes of the input: done so far, and in all
  int64_t tokens = 0, documents = 0, targets = 0, files = 0;
  int64_t kept_bytes = 0;     // bytes of the input that an earlier run has done
  int64_t removed_files = 0;  // token files of an unfinished run of another kind, which this run does not continue
  double seconds = 0;
};

/// Called when the options and the folder are found in order, now and then, and at the end.
using TokenizeObserver = std::function<void(const TokenizeProgress&)>;

/// Writes the folder. ConfigError names file and line of a malformed line. It is also thrown if the folder holds the
/// tokens of a finished run with another input, tokenizer or options; one that failed is in nobody's way. IoError.
TokenizeProgress tokenize(const TokenizeOptions& options, const Tokenizer& tokenizer, const TokenizeObserver& observer);

}  // namespace nought
