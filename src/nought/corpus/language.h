// The language of a text, by libcld2.
#pragma once

#include <string>
#include <string_view>

namespace nought {

struct Language {
  std::string code;  // ISO 639-1 where there is one: "en", "de"; "un": unknown
  double score = 0;  // part of the text in this language, 0 to 1
};
/// The language in which most of the text, valid UTF-8, is written. Thread safe.
Language language_of(std::string_view text);

/// Whether libcld2 knows a language by this code.
bool is_language(const std::string& code);

}  // namespace nought
