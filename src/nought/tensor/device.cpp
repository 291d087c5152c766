#include "nought/tensor/device.h"

#include <bit>
#include <cstdlib>

#include <sys/mman.h>

#include "nought/base/math.h"

namespace nought {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;

/// Large blocks are mapped by themselves: what is freed goes back to the system, whatever malloc would make of it.
class CpuDevice final : public Device {
 public:
  std::string_view name() const override { return "cpu"; }

  void* allocate(size_t bytes) override {
    if (bytes < kHugePage) return std::aligned_alloc(64, bytes);
    const size_t pages = round_up(bytes, kHugePage);
    void* const mapped =
        mmap(nullptr, pages + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, /*offset=*/0);
    if (mapped == MAP_FAILED) return nullptr;
    auto* const begin = static_cast<std::byte*>(mapped);
    const size_t head = round_up(std::bit_cast<size_t>(begin), kHugePage) - std::bit_cast<size_t>(begin);
    if (head > 0) munmap(begin, head);
    munmap(begin + head + pages, kHugePage - head);
    madvise(begin + head, pages, MADV_HUGEPAGE);  // fewer page faults; a hint only
    return begin + head;
  }

  void free(void* block, size_t bytes) override {
    if (bytes < kHugePage) {
      std::free(block);
    } else {
      munmap(block, round_up(bytes, kHugePage));
    }
  }

  bool clears(size_t bytes) const override { return bytes >= kHugePage; }  // the system clears what it maps
};

}  // namespace

const std::shared_ptr<Device>& cpu_device() {
  static const std::shared_ptr<Device> device = std::make_shared<CpuDevice>();
  return device;
}

}  // namespace nought
