// CudaDevice: one GPU as a Device. Memory comes from cudaMalloc, aligned to 256 bytes; that of Pool::host is pinned.
#pragma once

#include <memory>
#include <string>

#include "nought/cuda/backend/stream.h"
#include "nought/tensor/device.h"

namespace nought::cuda {

class CudaDevice final : public Device {
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
};

}  // namespace nought::cuda
