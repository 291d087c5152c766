#include "nought/io/atomic_file.h"

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "nought/base/error.h"
#include "nought/base/open_file.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

/// A link stays a link: what it leads to is replaced.
fs::path followed(fs::path path) {
  std::error_code error;
  if (!fs::is_symlink(path, error)) return path;
  fs::path target = fs::canonical(path, error);
  return error ? path : target;
}

/// The descriptor of this process that a name is of, such as /dev/stdout, /dev/fd/3 and /proc/self/fd/3; -1: none.
int opened_as(const fs::path& path) {
  const std::string name = path.string();
  if (name == "/dev/stdout") return STDOUT_FILENO;
  if (name == "/dev/stderr") return STDERR_FILENO;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!name.starts_with(folder)) continue;
    int descriptor = -1;
    const auto [end, error] = std::from_chars(name.data() + folder.size(), name.data() + name.size(), descriptor);
    return error == std::errc() && end == name.data() + name.size() ? descriptor : -1;
  }
  return -1;
}

/// A terminal, a pipe or a device, and whatever is named as an open file of a process: no file to put in its place.
bool is_stream(const fs::path& path) {
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  return opened_as(path) >= 0 || path.string().starts_with("/proc/") || type == fs::file_type::character ||
         type == fs::file_type::block || type == fs::file_type::fifo || type == fs::file_type::socket;
}

/// An open file of this process is written on where it stands: a second opening would have a place of its own in it,
/// and what the process writes next would come over the text.
int open_stream(const fs::path& path) {
  const int opened = opened_as(path), flags = opened < 0 ? -1 : ::fcntl(opened, F_GETFL);
  const bool is_written = flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
  if (!is_written) return open_file(path, O_WRONLY | O_APPEND);
  if (opened == STDOUT_FILENO) std::fflush(stdout);
  return ::fcntl(opened, F_DUPFD_CLOEXEC, 0);
}

void write_to_stream(const fs::path& path, std::string_view text) {
  const int descriptor = open_stream(path);
  require<IoError>(descriptor >= 0, "{}: cannot open: {}", path.string(), std::strerror(errno));
  const int reason = write_all(descriptor, text);
  ::close(descriptor);
  require<IoError>(reason == 0, "{}: cannot write: {}", path.string(), std::strerror(reason));
}

}  // namespace

void sync_folder(const fs::path& folder) {
  const int descriptor = open_file(folder.empty() ? "." : folder, O_RDONLY | O_DIRECTORY);
  // A folder that may be written but not read cannot be flushed by us.
  const int failed = descriptor >= 0 ? flush_file(descriptor) : errno == EACCES ? 0 : errno;
  if (descriptor >= 0) ::close(descriptor);
  const bool flushes_no_folders = failed == EINVAL || failed == ENOSYS || failed == EOPNOTSUPP;  // its file system
  require<IoError>(failed == 0 || flushes_no_folders, "{}: cannot flush the names of its files to disk: {}",
                   folder.string(), std::strerror(failed));
}

AtomicFile::AtomicFile(fs::path path, int64_t bytes) : path_(followed(std::move(path))) {
  require<IoError>(!is_stream(path_), "{}: not a file that another can take the place of: name one", path_.string());
  descriptor_ = open_file(partial(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  int reason = errno;
  require<IoError>(descriptor_ >= 0, "{}: cannot create the file: {}", partial().string(), std::strerror(reason));
  while ((reason = ::ftruncate(descriptor_, bytes) == 0 ? 0 : errno) == EINTR) {
  }
  if (reason == 0) return;
  ::close(std::exchange(descriptor_, -1));
  ::unlink(partial().c_str());
  fail<IoError>("{}: cannot make room for {} bytes: {}", partial().string(), bytes, std::strerror(reason));
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(other.path_), descriptor_(std::exchange(other.descriptor_, -1)) {}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(partial().c_str());
}

fs::path AtomicFile::partial() const {
  fs::path name = path_;
  return name += ".partial";
}

void AtomicFile::write(int64_t offset, std::span<const std::byte> bytes) const {
  require<IoError>(descriptor_ >= 0, "{}: written to after it was committed", path_.string());
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(descriptor_, bytes.data(), bytes.size(), offset);
    const int reason = errno;
    if (count < 0 && reason == EINTR) continue;
    require<IoError>(count > 0, "{}: cannot write {} bytes at offset {}: {}", partial().string(), bytes.size(), offset,
                     std::strerror(reason));
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += count;
  }
}

void AtomicFile::commit() {
  require<IoError>(descriptor_ >= 0, "{}: committed twice", path_.string());
  if (const int failed = flush_file(descriptor_); failed != 0)
    fail<IoError>("{}: cannot flush to disk: {}", partial().string(), std::strerror(failed));
  // Where a signal interrupts close(), the descriptor is gone all the same, and everything was flushed before.
  const bool closed = ::close(std::exchange(descriptor_, -1)) == 0 || errno == EINTR;
  if (closed && ::rename(partial().c_str(), path_.c_str()) == 0) return sync_folder(path_.parent_path());
  const int reason = errno;
  ::unlink(partial().c_str());
  fail<IoError>("{}: cannot give the finished file its name: {}", path_.string(), std::strerror(reason));
}

void write_text_atomically(const fs::path& path, std::string_view text) {
  if (is_stream(path)) return write_to_stream(path, text);
  AtomicFile file(path, static_cast<int64_t>(text.size()));
  file.write(0, std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace nought
