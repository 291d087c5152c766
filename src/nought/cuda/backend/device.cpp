#include "nought/cuda/backend/device.h"

namespace nought::cuda {

namespace {

/// Page-locked memory of the host, which copies reach without a copy in between.
class PinnedMemory final : public Device {
 public:
  std::string_view name() const override { return "pinned"; }
  void* allocate(size_t bytes) override {
    void* block = nullptr;
    if (cudaHostAlloc(&block, bytes, cudaHostAllocDefault) == cudaSuccess) return block;
    cudaGetLastError();
    return nullptr;
  }
  void free(void* block, size_t /*bytes*/) override { cudaFreeHost(block); }
  bool clears(size_t /*bytes*/) const override { return false; }
};

}  // namespace

CudaDevice::CudaDevice(int number, bool poison)
    : number_(number),
      poison_(poison),
      name_(fmt::format("cuda:{}", number)),
      pinned_(std::make_unique<PinnedMemory>()) {
  if (const std::string reason = why_no_device(); !reason.empty())
    fail<DeviceError>("{} cannot be used: {}", name_, reason);
  int devices = 0;
  check(cudaGetDeviceCount(&devices), "counting devices");
  require<DeviceError>(number >= 0 && number < devices, "{} is not there: the machine has {} devices", name_, devices);
  check(cudaSetDevice(number), "the device");
  check(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, number), "the device's size");
}

void* CudaDevice::allocate(size_t bytes) {
  void* block = nullptr;
  check(cudaSetDevice(number_), "the device");
  if (cudaMalloc(&block, bytes) != cudaSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  on_release(block, bytes);
  return block;
}

void CudaDevice::free(void* block, size_t /*bytes*/) {
  cudaSetDevice(number_);
  cudaFree(block);  // waits for the device
}

void CudaDevice::on_release(void* block, size_t bytes) {
  if (!poison_) return;
  if (const auto compute = compute_.lock()) compute->poison_bytes(static_cast<std::byte*>(block), bytes);
}

std::shared_ptr<Stream> CudaDevice::make_stream(std::string name) const {
  return std::make_shared<CudaStream>(number_, CudaStream::Use::other, std::move(name));
}

std::shared_ptr<CudaStream> CudaDevice::make_compute() {
  require<DeviceError>(compute_.expired(), "{} has a compute stream already", name_);
  auto stream = std::make_shared<CudaStream>(number_, CudaStream::Use::compute, "compute");
  compute_ = stream;
  return stream;
}

}  // namespace nought::cuda
