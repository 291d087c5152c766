#include "nought/cuda/backend/device.h"

#include <array>
#include <utility>

#include "nought/cuda/backend/combine.h"
#include "nought/cuda/backend/nccl.h"

namespace nought::cuda {

namespace {

/// Page-locked memory of the host, which copies reach without a copy in between.
class PinnedMemory final : public Device {
 public:
  explicit PinnedMemory(int device) : device_(device) {}
  std::string_view name() const override { return "pinned"; }
  void* allocate(size_t bytes) override {
    void* block = nullptr;
    cudaSetDevice(device_);  // a thread that has not said so would make itself known to the first one
    if (cudaHostAlloc(&block, bytes, cudaHostAllocDefault) == cudaSuccess) return block;
    cudaGetLastError();
    return nullptr;
  }
  void free(void* block, size_t /*bytes*/) override {
    cudaSetDevice(device_);
    cudaFreeHost(block);
  }
  bool clears(size_t /*bytes*/) const override { return false; }

 private:
  int device_;
};

}  // namespace

CudaDevice::CudaDevice(int number, bool poison)
    : number_(number),
      poison_(poison),
      name_(fmt::format("cuda:{}", number)),
      pinned_(std::make_unique<PinnedMemory>(number)) {
  if (const std::string reason = why_no_device(); !reason.empty())
    nought::fail<DeviceError>("{} cannot be used: {}", name_, reason);
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
  return std::make_shared<CudaStream>(number_, CudaStream::Use::other, std::move(name), state_);
}

std::shared_ptr<Stream> CudaDevice::make_host_stream(std::string name) const {
  return std::make_shared<Stream>(Stream::Kind::worker, std::move(name));
}

std::shared_ptr<CudaStream> CudaDevice::make_compute() {
  require<DeviceError>(compute_.expired(), "{} has a compute stream already", name_);
  auto stream = std::make_shared<CudaStream>(number_, CudaStream::Use::compute, "compute", state_);
  compute_ = stream;
  return stream;
}

std::string CudaDevice::place() const {
  std::array<char, 32> text{};
  check(cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), number_), "where the device is");
  return text.data();
}

std::string CudaDevice::link_library() const { return nccl_version(nccl_functions()); }

std::vector<std::byte> CudaDevice::make_group_id() const { return NcclGroup::make_id(nccl_functions()); }

std::unique_ptr<DeviceGroup> CudaDevice::join(std::span<const std::byte> id, int rank, int size,
                                              std::chrono::milliseconds patience) const {
  return std::make_unique<NcclGroup>(nccl_functions(), number_, id, rank, size, patience);
}

int CudaDevice::most_inputs() const { return kMostInputs; }

void CudaDevice::combine(Stream& stream, Combine op, const std::vector<const std::byte*>& inputs, std::byte* out,
                         int64_t count, DType dtype) const {
  auto* const queue = dynamic_cast<CudaStream*>(&stream);
  require<DeviceError>(queue != nullptr, "a reduction on {}: the stream is one of the host", name_);
  std::vector<Array> arrays;
  for (const std::byte* const input : inputs) arrays.push_back({const_cast<std::byte*>(input), dtype});  // only read
  const Launch where{.stream = queue->handle()};
  check(cudaSetDevice(number_), "the device of a reduction");
  if (op == Combine::sum) {
    sum_tensors(where, arrays, {out, dtype}, count);
  } else {
    extremes(where, arrays, {out, dtype}, op == Combine::max, count);
  }
}

void CudaDevice::fail(std::exception_ptr error) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->failure) state_->failure = std::move(error);
}

std::exception_ptr CudaDevice::failure() const {
  const std::lock_guard lock(state_->mutex);
  return state_->failure;
}

int64_t CudaDevice::waits_of(std::thread::id thread) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->waits.find(thread);
  return found == state_->waits.end() ? 0 : found->second;
}

}  // namespace nought::cuda
