// NamePattern: a regular expression that is searched for in names, such as those of parameters.
//
// Design goal: a pattern of a config may come from anybody, so its length, the memory of its compiled form and the
// steps of a search are bounded. Syntax and meaning are those of PCRE2, of which the patterns of ECMAScript are a part.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace nought {

class NamePattern {
 public:
  /// ConfigError, without the pattern's place, for what is no regular expression or is longer than 1000 bytes.
  explicit NamePattern(std::string_view pattern);

  const std::string& text() const { return text_; }
  /// Whether any part of the name matches. ConfigError if that takes more than 100,000 steps. Thread safe.
  bool found_in(std::string_view name) const;

 private:
  std::string text_;
  std::shared_ptr<const void> code_;
};

}  // namespace nought
