#include "nought/base/open_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nought/base/error.h"

namespace nought {

namespace {

/// Closes a descriptor at the end of its scope.
class Closing {
 public:
  explicit Closing(int descriptor) : descriptor_(descriptor) {}
  ~Closing() { ::close(descriptor_); }
  Closing(const Closing&) = delete;
  Closing& operator=(const Closing&) = delete;

 private:
  int descriptor_;
};

/// Calls f, which returns a count of bytes, until no signal interrupts it. IoError with `path`.
template <class F>
size_t bytes_of(const std::filesystem::path& path, F f) {
  while (true) {
    const ssize_t count = f();
    const int reason = errno;
    if (count >= 0) return static_cast<size_t>(count);
    if (reason != EINTR) fail<IoError>("{}: cannot read: {}", path.string(), std::strerror(reason));
  }
}

/// What comes up to the end, or to the limit: of a pipe, and of files of the system, which say no size.
std::string bytes_to_end(int descriptor, const std::filesystem::path& path, size_t limit) {
  std::string bytes;
  std::array<char, 1 << 14> piece;
  while (bytes.size() < limit) {
    const size_t most = std::min(piece.size(), limit - bytes.size());
    const size_t count = bytes_of(path, [&] { return ::read(descriptor, piece.data(), most); });
    if (count == 0) break;
    bytes.append(piece.data(), count);
  }
  return bytes;
}

/// A name that no file can have is that of no file.
bool is_of_no_file(int reason) { return reason == ENOENT || reason == ENOTDIR || reason == ENAMETOOLONG; }

}  // namespace

int open_file(const std::filesystem::path& path, int flags, unsigned mode) {
  int descriptor = -1;
  do {
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

std::optional<std::string> bytes_if_there(const std::filesystem::path& path) {
  const int descriptor = open_file(path, O_RDONLY), reason = descriptor < 0 ? errno : 0;
  if (is_of_no_file(reason)) return std::nullopt;
  require<IoError>(descriptor >= 0, "{}: cannot open: {}", path.string(), std::strerror(reason));
  const Closing closing(descriptor);
  return bytes_in(descriptor, path);
}

std::string system_text(const std::filesystem::path& path) {
  try {
    return bytes_if_there(path).value_or("");
  } catch (const IoError&) {
    return "";
  }
}

std::vector<std::filesystem::directory_entry> entries_of(const std::filesystem::path& folder, std::error_code& error) {
  std::filesystem::directory_iterator entry;
  do {
    error.clear();
    entry = std::filesystem::directory_iterator(folder, error);
  } while (error == std::errc::interrupted);
  std::vector<std::filesystem::directory_entry> entries;
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) entries.push_back(*entry);
  return entries;
}

std::vector<std::filesystem::directory_entry> entries_of(const std::filesystem::path& folder) {
  std::error_code error;
  auto entries = entries_of(folder, error);
  require<IoError>(!error, "{}: cannot be listed: {}", folder.string(), error.message());
  return entries;
}

void remove_all_of(const std::filesystem::path& path) {
  std::error_code error;
  do {
    std::filesystem::remove_all(path, error);
  } while (error == std::errc::interrupted);
  if (error) throw std::filesystem::filesystem_error("cannot remove", path, error);
}

int write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    const int reason = errno;
    if (count < 0 && reason == EINTR) continue;
    if (count <= 0) return count < 0 ? reason : EIO;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return 0;
}

int flush_file(int descriptor) {
  while (::fsync(descriptor) != 0)
    if (errno != EINTR) return errno;
  return 0;
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
  if (!S_ISREG(file.st_mode) || file.st_size == 0) return bytes_to_end(descriptor, path, limit);
  std::string bytes(std::min(limit, static_cast<size_t>(file.st_size)), '\0');
  for (size_t read = 0; read < bytes.size();) {
    const size_t count = bytes_of(
        path, [&] { return ::pread(descriptor, bytes.data() + read, bytes.size() - read, static_cast<off_t>(read)); });
    require<IoError>(count > 0, "{}: cannot read: it became shorter", path.string());
    read += count;
  }
  return bytes;
}

}  // namespace nought
