#include "nought/io/append_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "nought/base/error.h"
#include "nought/base/open_file.h"
#include "nought/io/atomic_file.h"

namespace nought {

AppendFile::AppendFile(std::filesystem::path path, std::string_view beginning) : path_(std::move(path)) {
  open(beginning);
}

AppendFile::AppendFile(AppendFile&& other) noexcept
    : path_(other.path_), descriptor_(std::exchange(other.descriptor_, -1)) {}

AppendFile& AppendFile::operator=(AppendFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

AppendFile::~AppendFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void AppendFile::open(std::string_view beginning) {
  write_text_atomically(path_, beginning);
  const int opened = open_file(path_, O_RDWR | O_APPEND), reason = errno;
  require<IoError>(opened >= 0, "cannot write {}: {}", path_.string(), std::strerror(reason));
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = opened;
}

void AppendFile::append(std::string_view bytes) {
  require<IoError>(descriptor_ >= 0, "{}: written to before it was opened", path_.string());
  if (!is_named(descriptor_, path_)) {
    std::error_code ignored;  // a folder that cannot be made is told by the file that cannot be made in it
    std::filesystem::create_directories(path_.parent_path(), ignored);
    open(bytes_in(descriptor_, path_));
  }
  const off_t before = ::lseek(descriptor_, 0, SEEK_END);
  const int reason = write_all(descriptor_, bytes);
  if (reason != 0 && before >= 0 && ::ftruncate(descriptor_, before) != 0)
    fail<IoError>("cannot write {}, which ends in a part of a line now: {}", path_.string(), std::strerror(reason));
  require<IoError>(reason == 0, "cannot write {}: {}", path_.string(), std::strerror(reason));
}

void AppendFile::sync() const {
  require<IoError>(descriptor_ >= 0, "{}: flushed before it was opened", path_.string());
  const int reason = flush_file(descriptor_);
  require<IoError>(reason == 0, "cannot flush {} to disk: {}", path_.string(), std::strerror(reason));
}

}  // namespace nought
