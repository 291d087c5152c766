// TokenDecoder: turns the tokens of a text back into the text.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nought/text/json_view.h"

namespace nought {

class TokenDecoder {
 public:
  /// A decoder of tokens that are bytes already: it joins them.
  TokenDecoder() = default;
  /// The decoder that "decoder" of tokenizer.json describes. byte_level: the vocabulary holds bytes, and not GPT-2's
  /// characters for them. ConfigError for an unsupported type.
  TokenDecoder(const JsonView& json, bool byte_level);

  /// ConfigError if the steps make too much of the tokens (GrowthLimit).
  std::string decode(std::vector<std::string> tokens) const;

 private:
  using Step = std::function<void(std::vector<std::string>&)>;
  void add(const JsonView& json, const std::string& type, bool byte_level);

  std::vector<Step> steps_;
};

}  // namespace nought
