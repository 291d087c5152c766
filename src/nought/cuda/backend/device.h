// CudaDevice: one GPU as a Device. Memory comes from cudaMalloc, aligned to 256 bytes; that of Pool::host is pinned. It
// is linked with those of other ranks by NCCL.
#pragma once

#include <memory>
#include <string>

#include "nought/cuda/backend/stream.h"
#include "nought/tensor/device.h"
#include "nought/tensor/device_group.h"

namespace nought::cuda {

class CudaDevice final : public Device, public LinkedDevice {
 public:
  /// DeviceError, with the reason, if there is no device of this number. With `poison`, fresh memory and what nobody
  /// holds any more is NaN.
  explicit CudaDevice(int number, bool poison = false);

  std::string_view name() const override { return name_; }
  void* allocate(size_t bytes) override;
  void free(void* block, size_t bytes) override;
  bool clears(size_t /*bytes*/) const override { return false; }
  size_t alignment() const override { return 256; }
  bool is_host() const override { return false; }
  Device* host_side() override { return pinned_.get(); }
  void on_release(void* block, size_t bytes) override;
  std::shared_ptr<Stream> compute() const override { return compute_.lock(); }
  std::shared_ptr<Stream> make_stream(std::string name) const override;
  /// A thread: a stream of the device would carry out work of the host as it is submitted.
  std::shared_ptr<Stream> make_host_stream(std::string name) const override;

  std::string place() const override;
  std::string link_library() const override;
  std::vector<std::byte> make_group_id() const override;
  std::unique_ptr<DeviceGroup> join(std::span<const std::byte> id, int rank, int size,
                                    std::chrono::milliseconds patience) const override;
  int most_inputs() const override;
  void combine(Stream& stream, Combine op, const std::vector<const std::byte*>& inputs, std::byte* out, int64_t count,
               DType dtype) const override;
  void fail(std::exception_ptr error) override;
  std::exception_ptr failure() const override;

  /// How often a thread has waited for this device, on any of its streams, or held one up for a task of the host.
  int64_t waits_of(std::thread::id thread) const;
  /// The stream of the rank's kernels, made once. It does not belong to the device: what waits on it holds memory.
  std::shared_ptr<CudaStream> make_compute();
  /// Streaming multiprocessors.
  int multiprocessors() const { return multiprocessors_; }

 private:
  const int number_;
  const bool poison_;
  const std::string name_;
  int multiprocessors_ = 0;
  std::unique_ptr<Device> pinned_;
  std::weak_ptr<CudaStream> compute_;
  std::shared_ptr<DeviceState> state_ = std::make_shared<DeviceState>();
};

}  // namespace nought::cuda
