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

/// The n-grams of words, by their hashes, for one n after another.
class Grams {
 public:
  explicit Grams(const std::vector<std::string_view>& words) : ends_(1, 0) {
    words_.reserve(words.size());
    ends_.reserve(words.size() + 1);
    for (const std::string_view word : words) {
      words_.push_back(XXH3_64bits(word.data(), word.size()));
      ends_.push_back(ends_.back() + static_cast<int64_t>(count_characters(word)));
    }
  }
  /// How many n-grams there are. Their hashes are at hand from then on. Least work if n grows from call to call.
  int64_t prepare(int64_t n) {
    if (n < n_) {
      hashes_.clear();
      n_ = 0;
    }
    hashes_.resize(words_.size(), 0);
    const int64_t count = std::max<int64_t>(static_cast<int64_t>(words_.size()) - n + 1, 0);
    for (; n_ < n; ++n_)
      for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
        const uint64_t sum = (hashes_[i] + words_[i + static_cast<size_t>(n_)]) * 0x9E3779B97F4A7C15U;
        hashes_[i] = sum ^ (sum >> 32U);
      }
    return count;
  }
  uint64_t hash(int64_t i) const { return hashes_[static_cast<size_t>(i)]; }
  /// The characters of the words of a gram.
  int64_t characters(int64_t i) const { return ends_[static_cast<size_t>(i + n_)] - ends_[static_cast<size_t>(i)]; }

 private:
  std::vector<uint64_t> words_, hashes_;
  std::vector<int64_t> ends_;  // characters before each word, and in all
  int64_t n_ = 0;
};

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

/// The most frequent n-gram, the first of equals: how often it occurs, and its characters with the spaces in it.
struct TopGram {
  int64_t count = 0, characters = 0;
};
TopGram top_gram(Grams& grams, int64_t n, bool all_differ) {
  const int64_t count = grams.prepare(n);
  if (count <= 0) return {};
  if (all_differ) return {1, grams.characters(0) + n - 1};
  SeenSet& seen = seen_before(static_cast<size_t>(count));
  uint32_t most = 0;
  for (int64_t i = 0; i < count; ++i) most = std::max(most, seen.add(grams.hash(i)));
  int64_t first = 0;
  while (seen.count_of(grams.hash(first)) != most) ++first;
  return {most, grams.characters(first) + n - 1};
}

/// Characters of the n-grams that repeat an earlier one. Such a one is left behind whole.
int64_t duplicate_characters(Grams& grams, int64_t n) {
  const int64_t count = grams.prepare(n);
  if (count <= 0) return 0;
  SeenSet& seen = seen_before(static_cast<size_t>(count));
  int64_t characters = 0;
  for (int64_t i = 0; i < count;) {
    if (seen.add(grams.hash(i)) > 1) {
      characters += grams.characters(i);
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
    Grams grams(words);
    int64_t unique = kNone;  // the least n without an n-gram that occurs twice: longer ones are unique, too
    for (size_t i = 0; i < rules_.top_n_grams.size(); ++i) {
      const auto n = static_cast<int64_t>(rules_.top_n_grams[i][0]);
      const TopGram top = top_gram(grams, n, n >= unique);
      if (top.count == 1) unique = std::min(unique, n);
      if (static_cast<double>(top.count * top.characters) / all > rules_.top_n_grams[i][1]) return top_names_[i];
    }
    for (size_t i = 0; i < rules_.dup_n_grams.size(); ++i) {
      const auto n = static_cast<int64_t>(rules_.dup_n_grams[i][0]);
      if (n >= unique) continue;
      const int64_t characters = duplicate_characters(grams, n);
      if (characters == 0) unique = std::min(unique, n);
      if (static_cast<double>(characters) / all > rules_.dup_n_grams[i][1]) return dup_names_[i];
    }
    return "";
  }

  static constexpr int64_t kNone = int64_t{1} << 40;
  RepetitionRules rules_;
  std::vector<std::string> top_names_, dup_names_;
};

}  // namespace

std::unique_ptr<Filter> make_filter(RepetitionRules rules) {
  return std::make_unique<RepetitionFilter>(std::move(rules));
}

}  // namespace nought
