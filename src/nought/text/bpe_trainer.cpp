#include "nought/text/bpe_trainer.h"

#include <algorithm>
#include <queue>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/text/pre_tokenizer.h"
#include "nought/text/tokenizer_files.h"
#include "nought/text/unicode.h"
#include "nought/text/vocabulary.h"

namespace nought {

namespace {

using Pair = std::pair<int32_t, int32_t>;

constexpr uint64_t key_of(Pair pair) {
  return static_cast<uint64_t>(static_cast<uint32_t>(pair.first)) << 32 | static_cast<uint32_t>(pair.second);
}
constexpr Pair pair_of(uint64_t key) { return {static_cast<int32_t>(key >> 32), static_cast<int32_t>(key)}; }

struct Word {
  std::vector<int32_t> symbols;
  int64_t count;
};

/// A pair as it was when it was put into the heap: the pair's count may be lower by now.
struct Candidate {
  int64_t count;
  uint64_t pair;
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

/// The words, and how often each pair of neighbours occurs in them.
class Pairs {
 public:
  explicit Pairs(std::vector<Word> words) : words_(std::move(words)) {
    for (size_t w = 0; w < words_.size(); ++w) {
      const std::vector<int32_t>& symbols = words_[w].symbols;
      for (size_t i = 0; i + 1 < symbols.size(); ++i)
        change({symbols[i], symbols[i + 1]}, words_[w].count, static_cast<int32_t>(w));
    }
    offer_risen();
  }

  /// The most frequent pair; a count of 0 if there is none.
  Candidate best() {
    while (!heap_.empty()) {
      Candidate top = heap_.top();
      const auto found = pairs_.find(top.pair);
      const int64_t now = found == pairs_.end() ? 0 : found->second.count;
      if (now == top.count) return top;
      heap_.pop();
      if (now > 0) heap_.push({now, top.pair});
    }
    return {0, 0};
  }

  void merge(uint64_t key, int32_t merged) {
    std::vector<int32_t> where = std::move(pairs_[key].words);
    pairs_.erase(key);
    std::sort(where.begin(), where.end());
    where.erase(std::unique(where.begin(), where.end()), where.end());
    for (const int32_t w : where) merge_in(w, pair_of(key), merged);
    pairs_.erase(key);  // its counts were taken down with those of its neighbours
    offer_risen();
  }

 private:
  struct Info {
    int64_t count = 0;
    std::vector<int32_t> words;  // that hold it, or once held it
  };

  void change(Pair pair, int64_t by, int32_t word) {
    const uint64_t key = key_of(pair);
    Info& info = pairs_[key];
    info.count += by;
    if (by <= 0) return;
    if (info.words.empty() || info.words.back() != word) info.words.push_back(word);
    risen_.push_back(key);
  }

  void offer_risen() {
    std::sort(risen_.begin(), risen_.end());
    risen_.erase(std::unique(risen_.begin(), risen_.end()), risen_.end());
    for (const uint64_t key : risen_)
      if (const auto found = pairs_.find(key); found != pairs_.end() && found->second.count > 0)
        heap_.push({found->second.count, key});
    risen_.clear();
  }

  void merge_in(int32_t w, Pair pair, int32_t merged) {
    Word& word = words_[static_cast<size_t>(w)];
    std::vector<int32_t>& s = word.symbols;
    size_t kept = 0;
    for (size_t i = 0; i < s.size(); ++i, ++kept) {
      if (s[i] != pair.first || i + 1 == s.size() || s[i + 1] != pair.second) {
        s[kept] = s[i];
        continue;
      }
      if (kept > 0) {
        change({s[kept - 1], pair.first}, -word.count, w);
        change({s[kept - 1], merged}, word.count, w);
      }
      if (i + 2 < s.size()) {
        change({pair.second, s[i + 2]}, -word.count, w);
        change({merged, s[i + 2]}, word.count, w);
      }
      s[kept] = merged;
      ++i;
    }
    s.resize(kept);
  }

  std::vector<Word> words_;
  std::unordered_map<uint64_t, Info> pairs_;
  std::priority_queue<Candidate> heap_;
  std::vector<uint64_t> risen_;  // pairs whose count rose since they were offered
};

}  // namespace

std::string_view regex_of(WordPattern pattern) {
  switch (pattern) {
    case WordPattern::gpt2:
      break;
    case WordPattern::cl100k:
      return kCl100kPattern;
    case WordPattern::o200k:
      return kO200kPattern;
    case WordPattern::qwen2:
      return kQwen2Pattern;
  }
  return kGpt2Pattern;
}

void check_bpe_training(const BpeTraining& training) {
  const auto least = static_cast<int64_t>(256 + training.markers.size());
  require<ConfigError>(training.vocab_size >= least,
                       "a vocabulary of {} has no room for 256 bytes and {} markers: expected at least {}",
                       training.vocab_size, training.markers.size(), least);
}

TrainedBpe train_bpe(const WordCounts& counts, const BpeTraining& training,
                     const std::function<void(int64_t)>& observe) {
  check_bpe_training(training);
  TrainedBpe bpe;
  bpe.tokens = training.markers;
  std::vector<std::pair<std::string, char>> bytes;  // by character, whose UTF-8 is in the order of code points
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    bytes.emplace_back(bytes_to_characters({&c, 1}), c);
  }
  std::sort(bytes.begin(), bytes.end());
  std::array<int32_t, 256> id_of_byte{};
  for (const auto& [character, byte] : bytes) {
    id_of_byte[static_cast<uint8_t>(byte)] = static_cast<int32_t>(bpe.tokens.size());
    bpe.tokens.emplace_back(1, byte);
  }

  std::vector<std::pair<std::string_view, int64_t>> sorted(counts.begin(), counts.end());
  std::sort(sorted.begin(), sorted.end());
  std::vector<Word> words;
  for (const auto& [text, count] : sorted) {
    Word& word = words.emplace_back(Word{{}, count});
    for (const char byte : text) word.symbols.push_back(id_of_byte[static_cast<uint8_t>(byte)]);
  }
  Pairs pairs(std::move(words));
  std::unordered_map<std::string, int32_t> ids;  // different merges may make the same token
  for (size_t id = 0; id < bpe.tokens.size(); ++id) ids.emplace(bpe.tokens[id], static_cast<int32_t>(id));
  while (static_cast<int64_t>(bpe.tokens.size()) < training.vocab_size) {
    const Candidate best = pairs.best();
    if (best.count < std::max<int64_t>(training.min_count, 1)) break;
    const auto [left, right] = pair_of(best.pair);
    const std::string token = bpe.tokens[static_cast<size_t>(left)] + bpe.tokens[static_cast<size_t>(right)];
    const auto [known, fresh] = ids.emplace(token, static_cast<int32_t>(bpe.tokens.size()));
    if (fresh) bpe.tokens.push_back(token);
    bpe.merges.emplace_back(left, right);
    pairs.merge(best.pair, known->second);
    observe(static_cast<int64_t>(bpe.merges.size()));
  }
  return bpe;
}

OrderedJson tokenizer_json_of(const TrainedBpe& bpe, const BpeTraining& training, WordPattern pattern) {
  OrderedJson vocab = OrderedJson::object(), merges = OrderedJson::array(), added = OrderedJson::array();
  std::vector<std::string> spelt;
  for (size_t id = 0; id < bpe.tokens.size(); ++id) {
    const bool marker = id < training.markers.size();
    spelt.push_back(marker ? bpe.tokens[id] : bytes_to_characters(bpe.tokens[id]));
    vocab[spelt.back()] = id;
    if (marker) added.push_back(special_token(bpe.tokens[id], static_cast<int64_t>(id)));
  }
  for (const auto& [left, right] : bpe.merges)
    merges.push_back(spelt[static_cast<size_t>(left)] + " " + spelt[static_cast<size_t>(right)]);
  OrderedJson pre_tokenizer = byte_level_step(true);
  if (pattern != WordPattern::gpt2) {
    const OrderedJson split{
        {"type", "Split"}, {"pattern", {{"Regex", regex_of(pattern)}}}, {"behavior", "Isolated"}, {"invert", false}};
    pre_tokenizer = {{"type", "Sequence"}, {"pretokenizers", OrderedJson::array({split, byte_level_step(false)})}};
  }
  return byte_level_json(added, pre_tokenizer, vocab, merges);
}

}  // namespace nought
