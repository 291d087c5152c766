#include "nought/serve/event_stream.h"

#include <utility>

namespace nought {

void EventStream::push(std::string_view piece, const std::function<void(const std::string& data)>& on_event) {
  for (size_t end = piece.find('\n'); end != std::string_view::npos; end = piece.find('\n')) {
    line_ += piece.substr(0, end);
    piece.remove_prefix(end + 1);
    std::string line = std::exchange(line_, {});
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) {
      if (std::exchange(has_data_, false)) on_event(std::exchange(data_, {}));
    } else if (line.starts_with("data:")) {
      if (std::exchange(has_data_, true)) data_ += '\n';
      data_ += line.substr(line.starts_with("data: ") ? 6 : 5);
    }
  }
  line_ += piece;
}

}  // namespace nought
