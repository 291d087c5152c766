#include "nought/io/mapped_file.h"

#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <string>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nought/base/error.h"
#include "nought/base/open_file.h"

namespace nought {

/// One mapping as a signal handler finds it. Regions are never freed: those of closed files serve later ones, so that
/// the list can be walked at any time.
struct MappedFile::Region {
  std::atomic<const std::byte*> data = nullptr;  // null: free
  std::atomic<size_t> size = 0;
  std::string path;
  Region* next = nullptr;

  static inline std::atomic<Region*> first = nullptr;
  static inline std::mutex mutex;  // whoever adds a region holds it

  static Region* add(const std::byte* data, size_t size, std::string path) {
    const std::lock_guard lock(mutex);
    Region* region = first;
    while (region != nullptr && region->data != nullptr) region = region->next;
    const bool fresh = region == nullptr;
    if (fresh) region = new Region;
    region->path = std::move(path), region->size = size;
    region->data = data;
    if (fresh) region->next = first, first = region;
    return region;
  }
};

std::optional<MappedFile::Place> MappedFile::place_of(const void* address) {
  static_assert(std::atomic<Region*>::is_always_lock_free && std::atomic<size_t>::is_always_lock_free);
  const auto at = std::bit_cast<uintptr_t>(address);
  for (const Region* region = Region::first; region != nullptr; region = region->next) {
    const auto begin = std::bit_cast<uintptr_t>(region->data.load());
    if (begin == 0 || at < begin || at - begin >= region->size) continue;
    return Place{region->path.c_str(), at - begin, region->size};
  }
  return std::nullopt;
}

MappedFile::MappedFile(const std::filesystem::path& file) {
  const int descriptor = open_file(file, O_RDONLY), refused = errno;
  require<IoError>(descriptor >= 0, "{}: cannot open: {}", file.string(), std::strerror(refused));
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
  if (data_) region_ = Region::add(data_, size_, file.string());
}

MappedFile::~MappedFile() {
  if (region_) region_->data = nullptr;
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::release(Interval bytes) const {
  static const auto page = static_cast<int64_t>(::sysconf(_SC_PAGESIZE));
  const int64_t begin = bytes.begin / page * page, end = round_up(bytes.end, page);
  // The system keeps them in its cache; a page that is shared with a neighbour is mapped again when it is touched.
  ::madvise(const_cast<std::byte*>(data_) + begin, static_cast<size_t>(end - begin), MADV_DONTNEED);
}

}  // namespace nought
