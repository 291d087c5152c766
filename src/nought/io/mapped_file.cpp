#include "nought/io/mapped_file.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nought/base/error.h"

namespace nought {

MappedFile::MappedFile(const std::filesystem::path& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  require<IoError>(descriptor >= 0, "{}: cannot open: {}", file.string(), std::strerror(errno));
  struct stat status {};
  const bool regular = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  void* address = nullptr;
  int reason = 0;
  if (regular && status.st_size > 0) {
    address = ::mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_SHARED, descriptor, 0);
    if (address == MAP_FAILED) reason = errno;
  }
  ::close(descriptor);
  require<IoError>(regular, "{}: not a regular file", file.string());
  require<IoError>(reason == 0, "{}: cannot map {} bytes: {}", file.string(), status.st_size, std::strerror(reason));
  data_ = static_cast<const std::byte*>(address);
  size_ = static_cast<size_t>(status.st_size);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::release(Interval bytes) const {
  static const auto page = static_cast<int64_t>(::sysconf(_SC_PAGESIZE));
  const int64_t begin = bytes.begin / page * page, end = round_up(bytes.end, page);
  // The system keeps them in its cache; a page that is shared with a neighbour is mapped again when it is touched.
  ::madvise(const_cast<std::byte*>(data_) + begin, static_cast<size_t>(end - begin), MADV_DONTNEED);
}

}  // namespace nought
