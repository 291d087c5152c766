#include "nought/text/normalizer.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include <utf8proc.h>

#include "nought/text/bert_normalizer.h"
#include "nought/text/charsmap.h"
#include "nought/text/regex.h"
#include "nought/text/step_chain.h"
#include "nought/text/unicode.h"

namespace nought {

namespace {

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

/// ASCII is in all of Unicode's forms.
class ToUnicodeForm final : public Normalizer {
 public:
  explicit ToUnicodeForm(int options) : options_(options) {}
  void apply(std::string& text) const override {
    if (is_ascii(text)) return;
    utf8proc_uint8_t* out = nullptr;
    const utf8proc_ssize_t size =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                     &out, static_cast<utf8proc_option_t>(options_ | UTF8PROC_STABLE));
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(out, &std::free);
    require<ConfigError>(size >= 0, "cannot normalize the text: {}", utf8proc_errmsg(size));
    text.assign(reinterpret_cast<const char*>(out), static_cast<size_t>(size));
  }

 private:
  int options_;
};

class Lowercase final : public Normalizer {
 public:
  void apply(std::string& text) const override {
    constexpr char32_t kDottedI = 0x130;  // the one character whose lower case is two
    std::string out;
    out.reserve(text.size());
    for (size_t i = 0; i < text.size(); i += utf8_length(text[i])) {
      const char32_t c = first_code_point(std::string_view(text).substr(i));
      append_utf8(out, c == kDottedI ? U'i' : static_cast<char32_t>(utf8proc_tolower(static_cast<int32_t>(c))));
      if (c == kDottedI) append_utf8(out, 0x307);
    }
    text = std::move(out);
  }
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(std::string& text) const override {
    if (!text.empty()) text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

class ReplaceText final : public Normalizer {
 public:
  ReplaceText(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}
  void apply(std::string& text) const override { replace_all(text, from_, to_); }

 private:
  std::string from_, to_;
};

class ReplaceMatches final : public Normalizer {
 public:
  ReplaceMatches(std::string_view pattern, std::string to) : pattern_(pattern), to_(std::move(to)) {}
  void apply(std::string& text) const override {
    std::vector<Regex::Match> matches;
    pattern_.find_all(text, matches);
    if (matches.empty()) return;
    std::string out;
    size_t done = 0;
    for (const auto& [begin, end] : matches) {
      out.append(text, done, begin - done).append(to_);
      done = end;
    }
    text = out.append(text, done);
  }

 private:
  Regex pattern_;
  std::string to_;
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(std::string& text) const override {
    if (right_) text.resize(text.size() - trailing_white_space(text));
    if (left_) text.erase(0, leading_white_space(text));
  }

 private:
  bool left_, right_;
};

std::unique_ptr<Normalizer> read_replace(const JsonView& json) {
  const JsonView pattern = json["pattern"];
  std::string to = replacement_text(json["content"]);
  if (!pattern["String"].is_null()) return std::make_unique<ReplaceText>(pattern["String"].string(), std::move(to));
  return std::make_unique<ReplaceMatches>(pattern["Regex"].string(), std::move(to));
}

std::optional<UnicodeForm> form_named(const std::string& type) {
  if (type == "NFC") return UnicodeForm::nfc;
  if (type == "NFD") return UnicodeForm::nfd;
  if (type == "NFKC") return UnicodeForm::nfkc;
  if (type == "NFKD") return UnicodeForm::nfkd;
  return std::nullopt;
}

BertRules read_bert_rules(const JsonView& json) {
  BertRules rules;
  rules.clean_text = json["clean_text"].boolean_or(true);
  rules.parts_ideographs = json["handle_chinese_chars"].boolean_or(true);
  rules.lowercase = json["lowercase"].boolean_or(true);
  rules.strip_accents = json["strip_accents"].boolean_or(rules.lowercase);  // null: as with lower case
  return rules;
}

void add_normalizer(const JsonView& json, const std::string& type, Normalizers& steps) {
  if (const auto form = form_named(type)) {
    steps.push_back(make_unicode_form(*form));
  } else if (type == "Lowercase") {
    steps.push_back(make_lowercase());
  } else if (type == "BertNormalizer") {
    steps.push_back(make_bert_normalizer(read_bert_rules(json)));
  } else if (type == "Precompiled") {
    steps.push_back(make_precompiled(json["precompiled_charsmap"].string()));
  } else if (type == "Prepend") {
    steps.push_back(std::make_unique<Prepend>(replacement_text(json["prepend"])));
  } else if (type == "Replace") {
    steps.push_back(read_replace(json));
  } else if (type == "Strip") {
    steps.push_back(std::make_unique<Strip>(json["strip_left"].boolean(), json["strip_right"].boolean()));
  } else {
    json.check(false,
               "the normalizer {} is not supported; supported are NFC, NFD, NFKC, NFKD, Lowercase, BertNormalizer, "
               "Precompiled, Prepend, Replace, Strip and Sequence",
               type);
  }
}

}  // namespace

std::unique_ptr<Normalizer> make_unicode_form(UnicodeForm form) {
  const bool composes = form == UnicodeForm::nfc || form == UnicodeForm::nfkc;
  const bool compatible = form == UnicodeForm::nfkc || form == UnicodeForm::nfkd;
  return std::make_unique<ToUnicodeForm>((composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                                         (compatible ? UTF8PROC_COMPAT : 0));
}

std::unique_ptr<Normalizer> make_lowercase() { return std::make_unique<Lowercase>(); }

Normalizers read_normalizers(const JsonView& json) {
  Normalizers steps;
  for_each_step(json, "normalizers",
                [&](const JsonView& step, const std::string& type) { add_normalizer(step, type, steps); });
  return steps;
}

void normalize(const Normalizers& steps, std::string& text) {
  const GrowthLimit limit(text.size());
  for (const auto& step : steps) {
    step->apply(text);
    limit.check(text.size(), "the normalizers");
  }
}

}  // namespace nought
