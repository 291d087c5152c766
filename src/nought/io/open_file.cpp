#include "nought/io/open_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/stat.h>
#include <unistd.h>

#include "nought/base/error.h"

namespace nought {

bool is_named(int descriptor, const std::filesystem::path& path) {
  struct stat opened {
  }, named{};
  return ::fstat(descriptor, &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

std::string bytes_in(int descriptor, const std::filesystem::path& path, size_t limit) {
  struct stat file {};
  if (::fstat(descriptor, &file) != 0) fail<IoError>("{}: cannot read: {}", path.string(), std::strerror(errno));
  std::string bytes(std::min(limit, static_cast<size_t>(file.st_size)), '\0');
  for (size_t read = 0; read < bytes.size();) {
    const ssize_t count = ::pread(descriptor, bytes.data() + read, bytes.size() - read, static_cast<off_t>(read));
    if (count < 0 && errno == EINTR) continue;
    require<IoError>(count > 0, "{}: cannot read: {}", path.string(),
                     count == 0 ? "it became shorter" : std::strerror(errno));
    read += static_cast<size_t>(count);
  }
  return bytes;
}

}  // namespace nought
