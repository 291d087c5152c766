// Device: the place where tensors lie and kernels run: its blocks of memory, their addresses, its streams.
//
// Design goals: no byte of a device is touched but by kernels, copies and transports, and those name a stream. On the
// CPU all of it vanishes: addresses are those of RAM, and work is done when its submission returns.
// Non-goals: kernels, which are a Kernels of their own; several devices for one rank.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "nought/tensor/stream.h"

namespace nought {

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view name() const = 0;

  /// A block of memory as kernels address it, aligned to alignment(); null if the system refuses.
  virtual void* allocate(size_t bytes) = 0;
  virtual void free(void* block, size_t bytes) = 0;
  /// True if allocate() clears blocks of this size.
  virtual bool clears(size_t bytes) const = 0;
  /// What the addresses of all buffers are multiples of: a power of two, 64 at least.
  virtual size_t alignment() const { return 64; }

  /// True if host code may read and write the blocks.
  virtual bool is_host() const { return true; }
  /// The address that tensors hold for bytes of a block: another one than the kernels', where the host has no access.
  virtual std::byte* address_of(std::byte* bytes) const { return bytes; }
  /// Where blocks of Pool::host come from: memory of the host that the device's copies reach; null for RAM as it is.
  virtual Device* host_side() { return nullptr; }
  /// Nothing in flight uses the block any more; somebody else gets it next.
  virtual void on_release(void* /*block*/, size_t /*bytes*/) {}

  /// The stream on which the rank's kernels run, if they run later than they are submitted; else null.
  virtual std::shared_ptr<Stream> compute() const { return nullptr; }
  /// A stream beside it, for communication or files.
  virtual std::shared_ptr<Stream> make_stream(std::string name) const {
    return std::make_shared<Stream>(Stream::Kind::worker, std::move(name));
  }
  /// One for work of the host beside the device, such as files.
  virtual std::shared_ptr<Stream> make_host_stream(std::string name) const { return make_stream(std::move(name)); }
};

/// RAM, and kernels on the calling thread.
const std::shared_ptr<Device>& cpu_device();

}  // namespace nought
