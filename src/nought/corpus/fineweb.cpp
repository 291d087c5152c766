#include <algorithm>

#include <xxhash.h>

#include "nought/base/error.h"
#include "nought/base/visit.h"
#include "nought/corpus/characters.h"
#include "nought/corpus/rules.h"
#include "nought/corpus/seen_set.h"

namespace nought {

namespace {

/// The lines that are not blank, by '\n' alone.
std::vector<std::string_view> written_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    if (!strip(line).empty()) lines.push_back(line);
    begin = end + 1;
  }
  return lines;
}

int64_t repeated_characters(const std::vector<std::string_view>& lines) {
  thread_local SeenSet seen;
  seen.restart(lines.size());
  int64_t characters = 0;
  for (const std::string_view line : lines)
    if (seen.add(XXH3_64bits(line.data(), line.size())) > 1) characters += static_cast<int64_t>(count_characters(line));
  return characters;
}

class FineWebFilter final : public Filter {
 public:
  explicit FineWebFilter(FineWebRules rules) : rules_(rules) {}
  std::string_view name() const override { return FineWebRules::kName; }
  Json settings() const override { return to_json(rules_); }

  std::string_view apply(FilteredText& text) const override {
    const std::vector<std::string_view> lines = written_lines(text.str());
    if (lines.empty()) return "empty";
    int64_t ended = 0, short_ones = 0;
    for (const std::string_view line : lines) {
      ended += ends_sentence(last_character(line).code);
      short_ones += static_cast<int64_t>(count_characters(line)) <= rules_.short_line_length;
    }
    const auto all = static_cast<double>(lines.size()), ends = static_cast<double>(ended) / all;
    if (ends < rules_.line_punct_thr && !(ended == 0 && rules_.line_punct_exclude_zero)) return "line_punct_ratio";
    if (static_cast<double>(short_ones) / all > rules_.short_line_thr) return "short_line_ratio";
    const auto breaks = std::count(text.str().begin(), text.str().end(), '\n');
    const auto characters = static_cast<double>(count_characters(text.str())) - static_cast<double>(breaks);
    if (static_cast<double>(repeated_characters(lines)) / characters > rules_.char_duplicates_ratio)
      return "char_dup_ratio";
    const auto words = static_cast<double>(text.words().size());
    return static_cast<double>(breaks) / words > rules_.new_line_ratio ? "list_ratio" : "";
  }

 private:
  FineWebRules rules_;
};

}  // namespace

std::unique_ptr<Filter> make_filter(FineWebRules rules) { return std::make_unique<FineWebFilter>(rules); }

}  // namespace nought
