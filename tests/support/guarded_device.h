// A device without hardware, on which host code fails as it would on an accelerator, every time.
//
// Tensors hold addresses of a mapping that nobody may touch; kernels, copies and transports get those of a second
// mapping of the same memory. Streams run as late as they can, so that a missing wait is a wrong result. What was never
// written, and what went back to the allocator, is NaN.
#pragma once

#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "nought/base/math.h"
#include "nought/tensor/memory.h"

namespace nought::test {

class GuardedDevice final : public Device {
 public:
  GuardedDevice() {
    const int file = memfd_create("guarded device", 0);
    require<DeviceError>(file >= 0 && ftruncate(file, static_cast<off_t>(kBytes)) == 0, "no memory for the device");
    const auto map = [&](int access) {
      void* const mapped = mmap(nullptr, kBytes, access, MAP_SHARED | MAP_NORESERVE, file, 0);
      require<DeviceError>(mapped != MAP_FAILED, "no address space for the device");
      return static_cast<std::byte*>(mapped);
    };
    for_kernels_ = map(PROT_READ | PROT_WRITE);
    for_tensors_ = map(PROT_NONE);
    close(file);
  }
  ~GuardedDevice() override {
    munmap(for_kernels_, kBytes);
    munmap(for_tensors_, kBytes);
  }
  GuardedDevice(const GuardedDevice&) = delete;
  GuardedDevice& operator=(const GuardedDevice&) = delete;

  std::string_view name() const override { return "guarded"; }
  /// Memory calls it under its lock. Blocks are given once: Memory keeps what is free.
  void* allocate(size_t bytes) override {
    const size_t begin = used_;
    if (bytes > kBytes - begin) return nullptr;
    used_ += round_up(bytes, size_t{64});
    on_release(for_kernels_ + begin, bytes);
    return for_kernels_ + begin;
  }
  void free(void* /*block*/, size_t /*bytes*/) override {}
  bool clears(size_t /*bytes*/) const override { return false; }

  bool is_host() const override { return false; }
  std::byte* address_of(std::byte* bytes) const override { return for_tensors_ + (bytes - for_kernels_); }
  void on_release(void* block, size_t bytes) override { std::memset(block, 0xFF, bytes); }  // NaN in every dtype

  std::shared_ptr<Stream> compute() const override { return compute_.lock(); }
  /// The stream does not belong to the device: what waits on it holds memory of the device.
  void set_compute(const std::shared_ptr<Stream>& stream) { compute_ = stream; }
  std::shared_ptr<Stream> make_stream(std::string name) const override {
    auto stream = std::make_shared<Stream>(Stream::Kind::late, std::move(name));
    std::lock_guard lock(mutex_);
    made_.push_back(stream);
    return stream;
  }
  /// How often the calling thread has waited for a stream of the device. A download is one wait.
  int64_t waits() const {
    std::lock_guard lock(mutex_);
    int64_t waits = 0;
    const auto add = [&](const std::shared_ptr<Stream>& stream) {
      if (stream) waits += stream->waits_of(std::this_thread::get_id());
    };
    add(compute_.lock());
    for (const std::weak_ptr<Stream>& stream : made_) add(stream.lock());
    return waits;
  }

 private:
  static constexpr size_t kBytes = size_t{4} << 30;  // of addresses: pages come when they are touched
  std::byte *for_kernels_ = nullptr, *for_tensors_ = nullptr;
  size_t used_ = 0;
  std::weak_ptr<Stream> compute_;
  mutable std::mutex mutex_;
  mutable std::vector<std::weak_ptr<Stream>> made_;
};

/// A rank's memory on a device of its own, and the stream of its kernels.
struct GuardedMemory {
  std::shared_ptr<Stream> stream = std::make_shared<Stream>(Stream::Kind::late, "compute");
  std::shared_ptr<GuardedDevice> device = std::make_shared<GuardedDevice>();
  std::shared_ptr<Memory> memory = Memory::create(device);

  GuardedMemory() { device->set_compute(stream); }
};

}  // namespace nought::test
