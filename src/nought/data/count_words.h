// count_words(): how often each word occurs in files, for the training of a vocabulary.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "nought/data/corpus.h"
#include "nought/text/bpe_trainer.h"

namespace nought {

/// Counts the words of files. Each message of a conversation is a text of its own. Bytes that are not UTF-8 are left
/// out. `observe` is called now and then with the number of bytes counted so far. ConfigError for a malformed line;
/// IoError.
WordCounts count_words(const std::vector<std::filesystem::path>& files, const CorpusOptions& options,
                       WordPattern pattern, int threads, const std::function<void(int64_t)>& observe);

}  // namespace nought
