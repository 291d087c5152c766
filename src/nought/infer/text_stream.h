// TextStream: the text of tokens as they come, up to the first of some stop strings.
#pragma once

#include <string>
#include <vector>

#include "nought/data/tokenizer.h"

namespace nought {

class TextStream {
 public:
  /// ConfigError for an empty stop string.
  TextStream(const Tokenizer& tokenizer, std::vector<std::string> stops);

  /// The text that is certain after this token: whole characters that cannot be the beginning of a stop string.
  std::string push(int32_t token);
  /// True if a stop string has come: it and what follows it are not given.
  bool stopped() const { return stopped_; }
  /// What is left when no token follows.
  std::string finish();

 private:
  /// Moves out what no later text can make a stop string of; cuts at one that is there.
  std::string release();

  StreamDecoder decoder_;
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace nought
