#include "nought/corpus/language.h"

#include <cld2/public/compact_lang_det.h>
#include <cld2/public/encodings.h>

namespace nought {

Language language_of(std::string_view text) {
  CLD2::Language languages[3];
  int percents[3] = {};
  int bytes = 0;
  bool reliable = false;
  constexpr bool kIsPlainText = true;
  CLD2::DetectLanguageSummary(text.data(), static_cast<int>(text.size()), kIsPlainText, languages, percents, &bytes,
                              &reliable);
  return {CLD2::LanguageCode(languages[0]), percents[0] / 100.0};
}

bool is_language(const std::string& code) {
  return code != "un" && CLD2::GetLanguageFromName(code.c_str()) != CLD2::UNKNOWN_LANGUAGE;
}

}  // namespace nought
