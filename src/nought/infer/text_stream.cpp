#include "nought/infer/text_stream.h"

#include <algorithm>
#include <utility>

#include "nought/base/error.h"

namespace nought {

TextStream::TextStream(const Tokenizer& tokenizer, std::vector<std::string> stops)
    : decoder_(tokenizer), stops_(std::move(stops)) {
  require<ConfigError>(std::none_of(stops_.begin(), stops_.end(), [](const std::string& stop) { return stop.empty(); }),
                       "--stop got an empty text: it would end every reply at once");
}

std::string TextStream::release() {
  size_t certain = held_.size();
  for (size_t i = 0; i < stops_.size(); ++i) {
    const size_t at = held_.find(stops_[i]);
    if (at == std::string::npos || (stopped_ && at >= certain)) continue;
    stopped_ = true;
    stop_ = i;
    certain = at;
  }
  if (!stopped_) {
    for (const std::string& stop : stops_)
      for (size_t length = std::min(stop.size() - 1, held_.size()); length > 0; --length)
        if (held_.ends_with(std::string_view(stop).substr(0, length))) {
          certain = std::min(certain, held_.size() - length);
          break;
        }
  }
  std::string text = held_.substr(0, certain);
  held_.erase(0, stopped_ ? held_.size() : certain);
  return text;
}

std::string TextStream::push(int32_t token) {
  if (stopped_) return {};
  held_ += decoder_.push(token);
  return release();
}

std::string TextStream::finish() {
  if (stopped_) return {};
  held_ += decoder_.finish();
  return release() + std::exchange(held_, {});
}

}  // namespace nought
