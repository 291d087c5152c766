#include "nought/cli/launch_output.h"

#include <array>
#include <cerrno>

#include <limits.h>
#include <unistd.h>

namespace nought {

pollfd OutputRelay::event() const {
  if (waits()) return {sink_, POLLOUT, 0};
  return {ended_ ? -1 : source_, POLLIN, 0};  // poll() skips -1
}

void OutputRelay::serve(const pollfd& event) {
  if (event.revents == 0) return;
  if (waits()) {
    const ssize_t written = ::write(sink_, waiting_.data(), waiting_.size());
    if (written >= 0) waiting_.erase(0, static_cast<size_t>(written));
    if (written >= 0 || errno == EINTR || errno == EAGAIN) return;
    failure_ = errno;
    waiting_.clear();
    return;
  }
  // A pipe that has room at all takes this much at once.
  std::array<char, PIPE_BUF> bytes;
  const ssize_t count = ::read(source_, bytes.data(), bytes.size());
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (count <= 0) ended_ = true;
  if (count > 0 && failure_ == 0) waiting_.assign(bytes.data(), static_cast<size_t>(count));
}

}  // namespace nought
