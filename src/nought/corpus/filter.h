// Filter: a rule set that looks at one document, and keeps it, changes it or says why not.
//
// The rule sets are those of Gopher, C4 and FineWeb with the defaults and the words of datatrove, which has them from
// the papers. Every number is a key of a JSON file.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "nought/base/json_fwd.h"

namespace nought {

/// A text and what several filters want to know of it, which is computed once. Valid UTF-8.
class FilteredText {
 public:
  explicit FilteredText(std::string text) : text_(std::move(text)) {}
  FilteredText(const FilteredText&) = delete;
  FilteredText& operator=(const FilteredText&) = delete;

  const std::string& str() const { return text_; }
  /// The words, see split_words().
  const std::vector<std::string_view>& words();
  void replace(std::string text);

 private:
  std::string text_;
  std::vector<std::string_view> words_;
  bool split_ = false;
};

class Filter {
 public:
  virtual ~Filter() = default;
  virtual std::string_view name() const = 0;
  /// "" if the document stays; its text may be another then. Else the reason, in datatrove's word. Thread safe.
  virtual std::string_view apply(FilteredText& text) const = 0;
  /// The keys and their values.
  virtual Json settings() const = 0;
};

using Filters = std::vector<std::unique_ptr<Filter>>;

/// The filters of "gopher,gopher-repetition,c4,fineweb", in this order and with their defaults; or those of a JSON
/// file, a list with {"rule": NAME, KEY: VALUE...} for each. ConfigError for an unknown rule or key, with the nearest
/// known one, and for a value that cannot be.
Filters read_filters(const std::string& names_or_file);

/// The names of all rule sets.
std::vector<std::string> filter_names();

}  // namespace nought
