#include <algorithm>

#include "nought/base/error.h"
#include "nought/base/visit.h"
#include "nought/corpus/characters.h"
#include "nought/corpus/rules.h"

namespace nought {

namespace {

/// What the rules ask of the words of a text.
struct WordCounts {
  int64_t words = 0, no_symbols = 0, characters = 0, with_letter = 0;  // characters: of those that are no symbols
};

bool is_symbol_word(std::string_view word) {
  while (!word.empty()) {
    const Character c = first_character(word);
    if (!is_symbol(c.code)) return false;
    word.remove_prefix(c.length);
  }
  return true;
}

bool has_letter(std::string_view word) {
  while (!word.empty()) {
    const Character c = first_character(word);
    if (is_letter(c.code)) return true;
    word.remove_prefix(c.length);
  }
  return false;
}

WordCounts count_them(const std::vector<std::string_view>& words) {
  WordCounts counts;
  counts.words = static_cast<int64_t>(words.size());
  for (const std::string_view word : words) {
    const bool letter = has_letter(word);
    counts.with_letter += letter;
    if (!letter && is_symbol_word(word)) continue;
    ++counts.no_symbols;
    counts.characters += static_cast<int64_t>(count_characters(word));
  }
  return counts;
}

double part_of(int64_t count, int64_t all) {
  return static_cast<double>(count) / static_cast<double>(std::max<int64_t>(all, 1));
}

class GopherFilter final : public Filter {
 public:
  explicit GopherFilter(GopherRules rules) : rules_(std::move(rules)) {}
  std::string_view name() const override { return GopherRules::kName; }
  Json settings() const override { return to_json(rules_); }

  std::string_view apply(FilteredText& text) const override {
    const WordCounts counts = count_them(text.words());
    for (const std::string_view reason : {of_words(counts), of_symbols(text.str(), counts), of_lines(text.str())})
      if (!reason.empty()) return reason;
    if (rules_.min_alpha_words_ratio > 0 && part_of(counts.with_letter, counts.words) < rules_.min_alpha_words_ratio)
      return "gopher_below_alpha_threshold";
    return has_stop_words(text.words()) ? "" : "gopher_enough_stop_words";
  }

 private:
  std::string_view of_words(const WordCounts& counts) const {
    if (rules_.min_doc_words > 0 && counts.no_symbols < rules_.min_doc_words) return "gopher_short_doc";
    if (rules_.max_doc_words > 0 && counts.no_symbols > rules_.max_doc_words) return "gopher_long_doc";
    const double mean = part_of(counts.characters, counts.no_symbols);
    if (rules_.min_avg_word_length > 0 && mean < rules_.min_avg_word_length) return "gopher_below_avg_threshold";
    if (rules_.max_avg_word_length > 0 && mean > rules_.max_avg_word_length) return "gopher_above_avg_threshold";
    return "";
  }

  std::string_view of_symbols(std::string_view text, const WordCounts& counts) const {
    if (rules_.max_symbol_word_ratio <= 0) return "";
    const auto hashes = std::count(text.begin(), text.end(), '#');
    if (part_of(hashes, counts.words) > rules_.max_symbol_word_ratio) return "gopher_too_many_hashes";
    const size_t ellipses = count_of(text, "...") + count_of(text, "…");
    const bool many = part_of(static_cast<int64_t>(ellipses), counts.words) > rules_.max_symbol_word_ratio;
    return many ? "gopher_too_many_ellipsis" : "";
  }

  std::string_view of_lines(std::string_view text) const {
    const std::vector<std::string_view> lines = split_lines(text);
    int64_t bullets = 0, ellipses = 0;
    for (const std::string_view line : lines) {
      const std::string_view inner = strip(line);
      bullets += inner.starts_with("•") || inner.starts_with("-");
      ellipses += inner.ends_with("...") || inner.ends_with("…");
    }
    const auto all = static_cast<int64_t>(lines.size());
    if (rules_.max_bullet_lines_ratio > 0 && part_of(bullets, all) > rules_.max_bullet_lines_ratio)
      return "gopher_too_many_bullets";
    if (rules_.max_ellipsis_lines_ratio > 0 && part_of(ellipses, all) > rules_.max_ellipsis_lines_ratio)
      return "gopher_too_many_end_ellipsis";
    return "";
  }

  /// Whether enough different stop words occur.
  bool has_stop_words(const std::vector<std::string_view>& words) const {
    int64_t found = 0;
    for (const std::string& stop : rules_.stop_words) {
      if (found >= rules_.min_stop_words) break;
      found += std::find(words.begin(), words.end(), stop) != words.end();
    }
    return found >= rules_.min_stop_words;
  }

  GopherRules rules_;
};

}  // namespace

std::unique_ptr<Filter> make_filter(GopherRules rules) { return std::make_unique<GopherFilter>(std::move(rules)); }

}  // namespace nought
