// Trains a byte-level BPE vocabulary by the rule of Sennrich et al. (arXiv 1508.07909): the most frequent pair of
// neighbouring tokens becomes a new token, again and again.
//
// Ids and ties are those of Hugging Face's BpeTrainer, so that the same words give the same tokenizer.json. Ids are
// given to markers first, then to bytes in the order of their characters, then to merges. Of equally frequent pairs the
// one with the smaller ids is merged first.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "nought/base/json.h"
#include "nought/base/visit.h"

namespace nought {

/// A hash of strings that can look up a string_view without copying it.
struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
/// How often each word occurs. A word is a piece of text whose ends no token crosses.
using WordCounts = std::unordered_map<std::string, int64_t, StringHash, std::equal_to<>>;

/// How text is cut into words: by the pattern of one of these tokenizers (see pre_tokenizer.h).
enum class WordPattern { gpt2, cl100k, o200k, qwen2 };

template <>
struct EnumNames<WordPattern> {
  static constexpr std::array<std::pair<WordPattern, std::string_view>, 4> value{{{WordPattern::gpt2, "gpt2"},
                                                                                  {WordPattern::cl100k, "cl100k"},
                                                                                  {WordPattern::o200k, "o200k"},
                                                                                  {WordPattern::qwen2, "qwen2"}}};
};

/// Its regular expression.
std::string_view regex_of(WordPattern pattern);

struct BpeTraining {
  int64_t vocab_size = 0;            // tokens in all, with markers and bytes
  std::vector<std::string> markers;  // special tokens; the first one ends a document
  int64_t min_count = 2;             // pairs that occur less often are not merged
};

struct TrainedBpe {
  std::vector<std::string> tokens;                  // the bytes of each token, by id; the spelling of markers
  std::vector<std::pair<int32_t, int32_t>> merges;  // in order
};

/// ConfigError if vocab_size has no room for bytes and markers.
void check_bpe_training(const BpeTraining& training);

/// Trains a vocabulary. `observe` is called now and then with the number of merges so far. Throws as
/// check_bpe_training() does.
TrainedBpe train_bpe(const WordCounts& words, const BpeTraining& training, const std::function<void(int64_t)>& observe);

/// The vocabulary as the content of Hugging Face's tokenizer.json.
OrderedJson tokenizer_json_of(const TrainedBpe& bpe, const BpeTraining& training, WordPattern pattern);

}  // namespace nought
