// TokenDecoder: the tokens of a text back to the text.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nought/data/json_view.h"

namespace nought {

class TokenDecoder {
 public:
  /// Tokens are bytes already: they are put one after the other.
  TokenDecoder() = default;
  /// tokenizer.json's "decoder". byte_level: the vocabulary was turned into bytes. ConfigError for a type that is not
  /// supported.
  TokenDecoder(const JsonView& json, bool byte_level);

  std::string decode(std::vector<std::string> tokens) const;

 private:
  using Step = std::function<void(std::vector<std::string>&)>;
  void add(const JsonView& json, bool byte_level);

  std::vector<Step> steps_;
};

}  // namespace nought
