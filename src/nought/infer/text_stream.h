// TextStream: turns tokens into text as they come, and stops at the first stop string.
#pragma once

#include <string>
#include <vector>

#include "nought/text/tokenizer.h"

namespace nought {

class TextStream {
 public:
  /// ConfigError for an empty stop string.
  TextStream(const Tokenizer& tokenizer, std::vector<std::string> stops);

  /// Adds a token. Returns the text that is certain now: whole characters that cannot begin a stop string.
  std::string push(int32_t token);
  /// True after a stop string. The stop string and what follows it are not returned.
  bool stopped() const { return stopped_; }
  /// Which of them it was, as their index.
  size_t stop() const { return stop_; }
  /// The rest of the text, when no token follows.
  std::string finish();

 private:
  /// Removes and returns the text of held_ that cannot belong to a stop string; cuts at a stop string.
  std::string release();

  StreamDecoder decoder_;
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
  size_t stop_ = 0;
};

}  // namespace nought
