// DeviceGroup: ranks whose devices exchange bytes over links of their own, without the host; LinkedDevice: a Device
// that can join one.
//
// Design goals: everything is enqueued on a stream of the device, and the host goes on. It knows nothing of tensors,
// checks and counters: comm/linked makes a transport of it. Addresses are those of kernels.
// Non-goals: tags, and messages that wait for their receiver somewhere else than on the stream.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nought/tensor/dtype.h"
#include "nought/tensor/stream.h"

namespace nought {

/// What goes to a rank of a group, or comes from it.
struct DevicePart {
  int rank = 0;
  std::byte* at = nullptr;
  size_t bytes = 0;
};

/// One rank's end of a group. Its collectives are called in a task of a stream, always the same one, and enqueue there.
/// All ranks of the group issue the same ones in the same order. They throw what the library refuses.
class DeviceGroup {
 public:
  DeviceGroup() = default;
  /// Waits for the other ranks, for a short time. After abort() it does not.
  virtual ~DeviceGroup() = default;
  DeviceGroup(const DeviceGroup&) = delete;
  DeviceGroup& operator=(const DeviceGroup&) = delete;

  /// All at once: no part waits for another one of the same call. A call without a part for a rank does not wait for
  /// it.
  virtual void exchange(Stream& stream, const std::vector<DevicePart>& sent,
                        const std::vector<DevicePart>& received) = 0;
  virtual void broadcast(Stream& stream, std::byte* at, size_t bytes, int root) = 0;
  /// `bytes` of each rank; `shard` may be this rank's part of `full`.
  virtual void all_gather(Stream& stream, const std::byte* shard, std::byte* full, size_t bytes) = 0;
  // Sums in the dtype of the tensors and in the order that the library likes.
  virtual void sum_for_all(Stream& stream, std::byte* at, int64_t count, DType dtype) = 0;
  /// `count` elements of each rank; `shard` may be this rank's part of `full`.
  virtual void sum_in_parts(Stream& stream, const std::byte* full, std::byte* shard, int64_t count, DType dtype) = 0;

  /// What went wrong on the way, in words; "" if nothing is known to have. From any thread.
  virtual std::string fault() = 0;
  /// Ends what is enqueued, wherever it waits; the bytes that it would have written are undefined. Later calls throw.
  /// From any thread.
  virtual void abort() = 0;
};

class LinkedDevice {
 public:
  enum class Combine : uint8_t { sum, max, min };
  using Clock = std::chrono::steady_clock;

  virtual ~LinkedDevice() = default;
  /// Which piece of hardware it is; two ranks of a host that have the same cannot be linked.
  virtual std::string place() const = 0;
  /// The library and its version, as "NCCL 2.28.9". Error, with the reason, if there is none that can be used.
  virtual std::string link_library() const = 0;
  /// What the ranks of a new group need to find each other: one of them makes it, and tells the others.
  virtual std::vector<std::byte> make_group_id() const = 0;
  /// This rank's end of a new group. Waits for the others with this patience, and so does the first call that needs a
  /// link. CommError if they do not come.
  virtual std::unique_ptr<DeviceGroup> join(std::span<const std::byte> id, int rank, int size,
                                            std::chrono::milliseconds patience) const = 0;

  /// How many inputs combine() takes.
  virtual int most_inputs() const = 0;
  /// In a task of the stream: out = inputs[0] op inputs[1] op ..., in fp32 or exactly, rounded once. A NaN in any input
  /// gives a NaN. `out` may be one of the inputs.
  virtual void combine(Stream& stream, Combine op, const std::vector<const std::byte*>& inputs, std::byte* out,
                       int64_t count, DType dtype) const = 0;

  /// From now on every wait for this device throws the error, the first one that it was given: results that were on
  /// their way from other ranks do not come. From any thread.
  virtual void fail(std::exception_ptr error) = 0;
  /// What fail() was given; null if nothing.
  virtual std::exception_ptr failure() const = 0;
};

}  // namespace nought
