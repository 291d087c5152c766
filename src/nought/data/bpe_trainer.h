// BpeTrainer: a byte-level BPE vocabulary from text, by the rule of Sennrich et al. (arXiv 1508.07909): the pair of
// neighbours that is most frequent becomes a token, over and over.
//
// Ids and ties are those of Hugging Face's BpeTrainer, so that the same words give the same tokenizer.json: markers
// first, then the bytes in the order of their characters, then the merges; of equally frequent pairs the smaller ids.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "nought/base/json.h"
#include "nought/data/corpus.h"

namespace nought {

/// A hash for look-ups without a copy of the key.
struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
/// How often each piece of text occurs that no token crosses.
using WordCounts = std::unordered_map<std::string, int64_t, StringHash, std::equal_to<>>;

/// How text is cut into words: the patterns of gpt2, cl100k, o200k and qwen2.
enum class WordPattern { gpt2, cl100k, o200k, qwen2 };

template <>
struct EnumNames<WordPattern> {
  static constexpr std::array<std::pair<WordPattern, std::string_view>, 4> value{{{WordPattern::gpt2, "gpt2"},
                                                                                  {WordPattern::cl100k, "cl100k"},
                                                                                  {WordPattern::o200k, "o200k"},
                                                                                  {WordPattern::qwen2, "qwen2"}}};
};

/// The words of files; messages of conversations are texts of their own. `observe` is called with the bytes that are
/// counted, now and then. What is not UTF-8 is left out. ConfigError and IoError as CorpusEncoder.
WordCounts count_words(const std::vector<std::filesystem::path>& files, const CorpusOptions& options,
                       WordPattern pattern, int threads, const std::function<void(int64_t)>& observe);

struct BpeTraining {
  int64_t vocab_size = 0;            // markers and bytes among them
  std::vector<std::string> markers;  // tokens that are no text; the first of them ends a document
  int64_t min_count = 2;             // pairs that occur less often are left
};

struct TrainedBpe {
  std::vector<std::string> tokens;                  // their bytes, by id; markers as they are spelt
  std::vector<std::pair<int32_t, int32_t>> merges;  // in order
};

/// ConfigError if the vocabulary has no room for bytes and markers. `observe` is called with the number of merges.
TrainedBpe train_bpe(const WordCounts& words, const BpeTraining& training, const std::function<void(int64_t)>& observe);

/// Hugging Face's tokenizer.json of a vocabulary.
OrderedJson tokenizer_json_of(const TrainedBpe& bpe, const BpeTraining& training, WordPattern pattern);

}  // namespace nought
