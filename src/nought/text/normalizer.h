// Normalizer: a step that changes text before a tokenizer cuts it into pieces.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nought/text/json_view.h"

namespace nought {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  /// Changes the text, which is valid UTF-8 before and after.
  virtual void apply(std::string& text) const = 0;
};

using Normalizers = std::vector<std::unique_ptr<Normalizer>>;

/// The steps of "normalizer" in tokenizer.json, in order; none if it is null. ConfigError for an unsupported type.
Normalizers read_normalizers(const JsonView& json);

/// Steps that others are made of.
enum class UnicodeForm { nfc, nfd, nfkc, nfkd };
std::unique_ptr<Normalizer> make_unicode_form(UnicodeForm form);
std::unique_ptr<Normalizer> make_lowercase();

/// Applies the steps in order. ConfigError if they make too much of the text (GrowthLimit).
void normalize(const Normalizers& steps, std::string& text);

}  // namespace nought
