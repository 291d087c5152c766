#include "nought/io/open_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nought/base/error.h"

namespace nought {

int open_file(const std::filesystem::path& path, int flags, unsigned mode) {
  int descriptor = -1;
  do {
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

std::optional<std::string> bytes_if_there(const std::filesystem::path& path) {
  const int descriptor = open_file(path, O_RDONLY), reason = descriptor < 0 ? errno : 0;
  if (reason == ENOENT) return std::nullopt;
  require<IoError>(descriptor >= 0, "{}: cannot open: {}", path.string(), std::strerror(reason));
  try {
    std::string bytes = bytes_in(descriptor, path);
    ::close(descriptor);
    return bytes;
  } catch (...) {
    ::close(descriptor);
    throw;
  }
}

bool is_named(int descriptor, const std::filesystem::path& path) {
  struct stat opened {
  }, named{};
  return ::fstat(descriptor, &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

std::string bytes_in(int descriptor, const std::filesystem::path& path, size_t limit) {
  struct stat file {};
  if (::fstat(descriptor, &file) != 0) {
    const int reason = errno;
    fail<IoError>("{}: cannot read: {}", path.string(), std::strerror(reason));
  }
  std::string bytes(std::min(limit, static_cast<size_t>(file.st_size)), '\0');
  for (size_t read = 0; read < bytes.size();) {
    const ssize_t count = ::pread(descriptor, bytes.data() + read, bytes.size() - read, static_cast<off_t>(read));
    const int reason = errno;
    if (count < 0 && reason == EINTR) continue;
    require<IoError>(count > 0, "{}: cannot read: {}", path.string(),
                     count == 0 ? "it became shorter" : std::strerror(reason));
    read += static_cast<size_t>(count);
  }
  return bytes;
}

}  // namespace nought
