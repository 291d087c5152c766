#include <algorithm>

#include "nought/base/error.h"
#include "nought/base/visit.h"
#include "nought/corpus/characters.h"
#include "nought/corpus/rules.h"
#include "nought/corpus/words.h"

namespace nought {

namespace {

constexpr std::string_view kPolicyPhrases[] = {"terms of use", "privacy policy", "cookie policy",
                                               "uses cookies", "use of cookies", "use cookies"};

/// The length of a citation in square brackets at the start, as Wikipedia has them; 0 if there is none.
size_t citation_at(std::string_view text) {
  for (const std::string_view mark : {"[edit]", "[citation needed]"})
    if (text.starts_with(mark)) return mark.size();
  const size_t end = text.find_first_not_of("0123456789", 1);
  return end != std::string_view::npos && text[end] == ']' ? end + 1 : 0;
}

std::string without_citations(std::string_view line) {
  std::string rest;
  while (!line.empty()) {
    const size_t bracket = std::min(line.find('['), line.size());
    rest += line.substr(0, bracket);
    line.remove_prefix(bracket);
    if (line.empty()) break;
    const size_t citation = citation_at(line);
    if (citation == 0) rest += '[';
    line.remove_prefix(std::max<size_t>(citation, 1));
  }
  return rest;
}

bool has_end_mark(std::string_view line) {
  return !line.empty() && std::string_view(".?!\"'").find(line.back()) != std::string_view::npos &&
         !line.ends_with("...");
}

/// What becomes of a line.
struct LineFate {
  bool stays = false;
  std::string_view page_reason = {};  // why the whole page goes; "" if it does not
};

class C4Filter final : public Filter {
 public:
  explicit C4Filter(C4Rules rules) : rules_(rules) {}
  std::string_view name() const override { return C4Rules::kName; }
  Json settings() const override { return to_json(rules_); }

  std::string_view apply(FilteredText& text) const override {
    if (!has_paragraphs(text.str())) return "too_few_paragraphs";
    std::string kept;
    int64_t sentences = 0;
    for (const std::string_view whole : split_lines(text.str())) {
      std::string line(strip(whole));
      const LineFate fate = fate_of(line);
      if (!fate.page_reason.empty()) return fate.page_reason;
      if (!fate.stays) continue;
      if (rules_.min_num_sentences != -1) sentences += count_sentences(line);
      (kept += line) += '\n';
    }
    if (sentences < rules_.min_num_sentences) return "too_few_sentences";
    text.replace(std::string(strip(kept)));
    return "";
  }

 private:
  /// mC4's rule of paragraphs.
  bool has_paragraphs(std::string_view text) const {
    int64_t long_ones = 0;
    for (size_t begin = 0; rules_.min_paragraphs > 0 && begin <= text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      const size_t characters = count_characters(text.substr(begin, end - begin));
      long_ones += static_cast<int64_t>(characters) >= rules_.min_paragraph_len;
      begin = end + 1;
    }
    return long_ones >= rules_.min_paragraphs;
  }

  /// What becomes of the line, which loses its citations.
  LineFate fate_of(std::string& line) const {
    std::vector<std::string_view> words;
    split_at_spaces(line, words);
    const auto count = static_cast<int64_t>(words.size());
    const auto is_long = [&](std::string_view word) {
      return static_cast<int64_t>(count_characters(word)) > rules_.max_word_length;
    };
    if (rules_.max_word_length != -1 && std::any_of(words.begin(), words.end(), is_long)) return {};
    if (rules_.remove_citations && line.find('[') != std::string::npos) line = without_citations(line);
    if (rules_.filter_no_terminal_punct && !has_end_mark(line)) return {};
    if (count < rules_.min_words_per_line) return {};
    const std::string lower = lower_text(line);
    const auto mentions = [&](std::string_view phrase) { return lower.find(phrase) != std::string::npos; };
    if (rules_.filter_lorem_ipsum && mentions("lorem ipsum")) return {.page_reason = "lorem_ipsum"};
    if (rules_.filter_javascript && mentions("javascript")) return {};
    if (rules_.filter_curly_bracket && mentions("{")) return {.page_reason = "curly_bracket"};
    if (rules_.filter_policy && std::any_of(std::begin(kPolicyPhrases), std::end(kPolicyPhrases), mentions)) return {};
    return {.stays = true};
  }

  C4Rules rules_;
};

}  // namespace

std::unique_ptr<Filter> make_filter(C4Rules rules) { return std::make_unique<C4Filter>(rules); }

}  // namespace nought
