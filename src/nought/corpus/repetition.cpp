#include <algorithm>
#include <cmath>

#include <xxhash.h>

#include "nought/base/error.h"
#include "nought/base/visit.h"
#include "nought/corpus/characters.h"
#include "nought/corpus/rules.h"
#include "nought/corpus/seen_set.h"

namespace nought {

namespace {

/// A word as n-grams see it.
struct HashedWord {
  uint64_t hash = 0;
  int64_t characters = 0;
};

/// The hash of n words, in order.
uint64_t hash_of_words(const HashedWord* words, int64_t n) {
  uint64_t hash = 0;
  for (int64_t i = 0; i < n; ++i) hash = (hash + words[i].hash) * 0x9E3779B97F4A7C15U;
  return hash ^ (hash >> 32U);
}

int64_t characters_of(const HashedWord* words, int64_t n) {
  int64_t characters = 0;
  for (int64_t i = 0; i < n; ++i) characters += words[i].characters;
  return characters;
}

SeenSet& seen_before(size_t capacity) {
  thread_local SeenSet seen;
  seen.restart(capacity);
  return seen;
}

/// The pieces that stand between runs of at least `least` line breaks, empty ones too.
std::vector<std::string_view> split_at_breaks(std::string_view text, size_t least) {
  std::vector<std::string_view> pieces;
  size_t begin = 0, at = 0;
  while ((at = text.find('\n', at)) != std::string_view::npos) {
    const size_t end = std::min(text.find_first_not_of('\n', at), text.size());
    if (end - at >= least) {
      pieces.push_back(text.substr(begin, at - begin));
      begin = end;
    }
    at = end;
  }
  pieces.push_back(text.substr(begin));
  return pieces;
}

/// How many pieces repeat an earlier one, and their characters.
struct Repeated {
  int64_t pieces = 0, characters = 0;
};
Repeated repeated_of(const std::vector<std::string_view>& pieces) {
  SeenSet& seen = seen_before(pieces.size());
  Repeated repeated;
  for (const std::string_view piece : pieces)
    if (seen.add(XXH3_64bits(piece.data(), piece.size())) > 1) {
      ++repeated.pieces;
      repeated.characters += static_cast<int64_t>(count_characters(piece));
    }
  return repeated;
}

/// Characters of the most frequent n-gram, spaces between its words included, times its count. The first of equals.
int64_t top_characters(const std::vector<HashedWord>& words, int64_t n) {
  const int64_t grams = static_cast<int64_t>(words.size()) - n + 1;
  if (grams <= 0) return 0;
  // Python's Counter gives the first of equal ones: the gram whose final count is greatest and that began first.
  SeenSet& seen = seen_before(static_cast<size_t>(grams));
  uint32_t most = 0;
  for (int64_t i = 0; i < grams; ++i) most = std::max(most, seen.add(hash_of_words(&words[static_cast<size_t>(i)], n)));
  int64_t first = 0;
  for (int64_t i = 0; i < grams; ++i)
    if (seen.count_of(hash_of_words(&words[static_cast<size_t>(i)], n)) == most) {
      first = i;
      break;
    }
  return (characters_of(&words[static_cast<size_t>(first)], n) + n - 1) * most;
}

/// Characters of the n-grams that repeat an earlier one. Such a one is left behind whole.
int64_t duplicate_characters(const std::vector<HashedWord>& words, int64_t n) {
  const int64_t grams = static_cast<int64_t>(words.size()) - n + 1;
  if (grams <= 0) return 0;
  SeenSet& seen = seen_before(static_cast<size_t>(grams));
  int64_t characters = 0;
  for (int64_t i = 0; i < grams;) {
    const HashedWord* gram = &words[static_cast<size_t>(i)];
    if (seen.add(hash_of_words(gram, n)) > 1) {
      characters += characters_of(gram, n);
      i += n;
    } else {
      ++i;
    }
  }
  return characters;
}

void check_grams(const std::vector<std::vector<double>>& grams, const char* key) {
  for (const std::vector<double>& gram : grams)
    require<ConfigError>(
        gram.size() == 2 && gram[0] >= 1 && gram[0] <= 100 && gram[0] == std::floor(gram[0]),
        "gopher-repetition: {}: expected pairs of a number of words (1 to 100) and a part, as [2, 0.2]", key);
}

class RepetitionFilter final : public Filter {
 public:
  explicit RepetitionFilter(RepetitionRules rules) : rules_(std::move(rules)) {
    check_grams(rules_.top_n_grams, "top_n_grams");
    check_grams(rules_.dup_n_grams, "dup_n_grams");
    for (const auto& gram : rules_.top_n_grams) top_names_.push_back(fmt::format("top_{}_gram", gram[0]));
    for (const auto& gram : rules_.dup_n_grams) dup_names_.push_back(fmt::format("duplicated_{}_n_grams", gram[0]));
  }
  std::string_view name() const override { return RepetitionRules::kName; }
  Json settings() const override { return to_json(rules_); }

  std::string_view apply(FilteredText& text) const override {
    if (text.str().empty()) return "empty";
    const auto all = static_cast<double>(count_characters(text.str()));
    const std::string_view reason = of_lines(text.str(), all);
    return reason.empty() ? of_words(text.words(), all) : reason;
  }

 private:
  std::string_view of_lines(std::string_view text, double all) const {
    const auto paragraphs = split_at_breaks(strip(text), 2), lines = split_at_breaks(text, 1);
    const auto exceeds = [](double limit, int64_t count, double of) {
      return limit > 0 && static_cast<double>(count) / of > limit;
    };
    const Repeated of_paragraphs = repeated_of(paragraphs), repeated = repeated_of(lines);
    const auto number = static_cast<double>(paragraphs.size());
    if (exceeds(rules_.dup_para_frac, of_paragraphs.pieces, number)) return "dup_para_frac";
    if (exceeds(rules_.dup_para_char_frac, of_paragraphs.characters, all)) return "dup_para_char_frac";
    if (exceeds(rules_.dup_line_frac, repeated.pieces, static_cast<double>(lines.size()))) return "dup_line_frac";
    if (exceeds(rules_.dup_line_char_frac, repeated.characters, all)) return "dup_line_char_frac";
    return "";
  }

  std::string_view of_words(const std::vector<std::string_view>& words, double all) const {
    std::vector<HashedWord> hashed;
    hashed.reserve(words.size());
    for (const std::string_view word : words)
      hashed.push_back({XXH3_64bits(word.data(), word.size()), static_cast<int64_t>(count_characters(word))});
    for (size_t i = 0; i < rules_.top_n_grams.size(); ++i) {
      const auto n = static_cast<int64_t>(rules_.top_n_grams[i][0]);
      if (static_cast<double>(top_characters(hashed, n)) / all > rules_.top_n_grams[i][1]) return top_names_[i];
    }
    for (size_t i = 0; i < rules_.dup_n_grams.size(); ++i) {
      const auto n = static_cast<int64_t>(rules_.dup_n_grams[i][0]);
      if (static_cast<double>(duplicate_characters(hashed, n)) / all > rules_.dup_n_grams[i][1]) return dup_names_[i];
    }
    return "";
  }

  RepetitionRules rules_;
  std::vector<std::string> top_names_, dup_names_;
};

}  // namespace

std::unique_ptr<Filter> make_filter(RepetitionRules rules) {
  return std::make_unique<RepetitionFilter>(std::move(rules));
}

}  // namespace nought
