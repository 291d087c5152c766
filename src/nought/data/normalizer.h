// Normalizer: what a tokenizer does to text before it is cut into pieces.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nought/data/json_view.h"

namespace nought {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  /// `text` is valid UTF-8 and stays so.
  virtual void apply(std::string& text) const = 0;
};

using Normalizers = std::vector<std::unique_ptr<Normalizer>>;

/// The steps of tokenizer.json's "normalizer", in order; none for null. ConfigError for a type that is not supported.
Normalizers read_normalizers(const JsonView& json);

}  // namespace nought
