// AddedTokens: tokens that are found in text by their spelling, before the rest of the tokenizer sees it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nought/text/tokenizer.h"

namespace nought {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;      // a marker: it is found only if the caller asks for markers
  bool strip_left = false;   // the white space before it belongs to it
  bool strip_right = false;  // the white space behind it belongs to it
  bool normalized = false;   // it is found in the normalized text, and not in the original
};

class AddedTokens {
 public:
  /// ConfigError for an empty token.
  void add(AddedToken token);

  const std::vector<AddedToken>& all() const { return tokens_; }
  std::optional<int32_t> find(std::string_view content) const;

  struct Match {
    size_t begin, end;  // bytes of the text, with the white space that belongs to the token
    int32_t id;
  };
  /// The first token in text[from, ...). Of tokens that start at the same place, the longest. `text` is valid UTF-8.
  std::optional<Match> next(std::string_view text, size_t from, bool specials, bool normalized) const;
  /// The first match, without the white space around it.
  std::optional<MarkerMatch> first(std::string_view text, size_t from, bool specials, bool normalized) const;
  /// The first token, special or not, of the original text or of the normalized one, which are the same here.
  std::optional<MarkerMatch> first_of_any(std::string_view text, size_t from) const;

 private:
  const AddedToken* longest_at(std::string_view text, bool specials, bool normalized) const;

  std::vector<AddedToken> tokens_;
  std::map<std::string, size_t, std::less<>> by_content_;
  std::array<bool, 256> begins_{};  // whether a token begins with the byte
};

}  // namespace nought
