#include "nought/text/bert_normalizer.h"

#include <algorithm>
#include <array>

#include <utf8proc.h>

#include "nought/text/unicode.h"

namespace nought {

namespace {

/// What a character is replaced by; its code point, or nothing.
template <class Replace>
std::string replaced(std::string_view text, const Replace& replace) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); i += utf8_length(text[i]))
    replace(first_code_point(text.substr(i)), text.substr(i, utf8_length(text[i])), out);
  return out;
}

bool is_control(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  const utf8proc_category_t category = utf8proc_category(static_cast<int32_t>(c));
  return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_CO;
}

std::string cleaned(std::string_view text) {
  constexpr char32_t kReplacement = 0xFFFD;
  return replaced(text, [](char32_t c, std::string_view spelt, std::string& out) {
    if (c == kReplacement || is_control(c)) return;
    is_white_space(c) ? void(out += ' ') : void(out += spelt);
  });
}

/// The blocks of CJK ideographs, as the tokenizers library has them.
bool is_ideograph(char32_t c) {
  constexpr std::array<std::pair<char32_t, char32_t>, 7> kBlocks{{{0x3400, 0x4DBF},
                                                                  {0x4E00, 0x9FFF},
                                                                  {0xF900, 0xFAFF},
                                                                  {0x20000, 0x2A6DF},
                                                                  {0x2A700, 0x2B81F},
                                                                  {0x2B920, 0x2CEAF},
                                                                  {0x2F800, 0x2FA1F}}};
  return std::ranges::any_of(kBlocks, [c](const auto& block) { return block.first <= c && c <= block.second; });
}

std::string with_parted_ideographs(std::string_view text) {
  return replaced(text, [](char32_t c, std::string_view spelt, std::string& out) {
    is_ideograph(c) ? out.append(" ").append(spelt).append(" ") : out.append(spelt);
  });
}

std::string without_accents(std::string_view text) {
  return replaced(text, [](char32_t c, std::string_view spelt, std::string& out) {
    if (utf8proc_category(static_cast<int32_t>(c)) != UTF8PROC_CATEGORY_MN) out += spelt;
  });
}

class BertNormalizer final : public Normalizer {
 public:
  explicit BertNormalizer(const BertRules& rules)
      : rules_(rules), decompose_(make_unicode_form(UnicodeForm::nfd)), lowercase_(make_lowercase()) {}
  void apply(std::string& text) const override {
    if (rules_.clean_text) text = cleaned(text);
    if (rules_.parts_ideographs) text = with_parted_ideographs(text);
    if (rules_.strip_accents) {
      decompose_->apply(text);
      text = without_accents(text);
    }
    if (rules_.lowercase) lowercase_->apply(text);
  }

 private:
  BertRules rules_;
  std::unique_ptr<Normalizer> decompose_, lowercase_;
};

}  // namespace

std::unique_ptr<Normalizer> make_bert_normalizer(const BertRules& rules) {
  return std::make_unique<BertNormalizer>(rules);
}

}  // namespace nought
