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
  void* address = nullptr;
  const bool known = ::fstat(descriptor, &status) == 0;
  if (known && status.st_size > 0)
    address = ::mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_SHARED, descriptor, 0);
  const int error = errno;
  ::close(descriptor);
  require<IoError>(known && address != MAP_FAILED, "{}: cannot map: {}", file.string(), std::strerror(error));
  data_ = static_cast<const char*>(address);
  size_ = static_cast<size_t>(status.st_size);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<char*>(data_), size_);
}

}  // namespace nought
