// AddedTokens: tokens that are found in text as they are spelt, before anything else is done to it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace nought {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;     // a marker rather than text: found only where the caller wants markers
  bool strip_left = false;  // takes the white space before it
  bool strip_right = false;
  bool normalized = false;  // found in the normalized text
};

class AddedTokens {
 public:
  /// ConfigError for an empty token.
  void add(AddedToken token);

  const std::vector<AddedToken>& all() const { return tokens_; }
  std::optional<int32_t> find(std::string_view content) const;

  struct Match {
    size_t begin, end;  // with the white space that it takes
    int32_t id;
  };
  /// The first token in text[from, ...), the longest of those that start there. `text` is valid UTF-8.
  std::optional<Match> next(std::string_view text, size_t from, bool specials, bool normalized) const;

 private:
  const AddedToken* longest_at(std::string_view text, bool specials, bool normalized) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string, size_t> by_content_;
  std::vector<std::vector<size_t>> lengths_by_first_byte_ = std::vector<std::vector<size_t>>(256);  // long ones first
};

}  // namespace nought
