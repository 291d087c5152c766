#include "nought/cuda/backend/stream.h"

#include <utility>

namespace nought::cuda {

/// A point in a stream: an event of CUDA.
class CudaStream::Marker final : public Event::State {
 public:
  Marker(std::shared_ptr<Shared> stream, uint64_t number) : stream_(std::move(stream)), number_(number) {
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "an event");
    check(cudaEventRecord(event_, stream_->stream), "recording an event");
  }
  ~Marker() override { cudaEventDestroy(event_); }

  void settle() override {
    {
      const std::lock_guard lock(stream_->mutex);
      ++stream_->waits[std::this_thread::get_id()];
    }
    stream_->of_device->count_wait();
    const cudaError_t result = cudaEventSynchronize(event_);
    cudaGetLastError();
    {
      const std::lock_guard lock(mutex_);
      if (result != cudaSuccess && result_ == cudaSuccess) result_ = result, text_ = cudaGetErrorString(result);
    }
    stream_->held->reached(number_);
  }
  bool ready() override {
    if (cudaEventQuery(event_) == cudaSuccess) return true;
    cudaGetLastError();  // "not ready" counts as a failure there
    return false;
  }
  std::exception_ptr error() override {
    {
      const std::lock_guard lock(stream_->of_device->mutex);
      if (stream_->of_device->failure) return stream_->of_device->failure;
    }
    const std::lock_guard lock(mutex_);
    if (result_ == cudaSuccess) return nullptr;
    return std::make_exception_ptr(
        DeviceError(fmt::format("CUDA: an earlier operation failed: {} ({}); NOUGHT_CUDA_SYNCHRONOUS=1 names it",
                                cudaGetErrorName(result_), text_)));
  }
  /// Lets work enqueued on `other` from now on wait for this point.
  void hold_up(const Shared& other, Use use) const {
    check(cudaStreamWaitEvent(other.stream, event_, 0), "waiting for an event");
    other.held->follow(stream_->held, number_);
    if (use == Use::compute) stream_->held->passed(number_);
  }
  uint64_t number() const { return number_; }

 private:
  std::shared_ptr<Shared> stream_;
  uint64_t number_;
  cudaEvent_t event_ = nullptr;
  std::mutex mutex_;
  cudaError_t result_ = cudaSuccess;
  std::string text_;
};

CudaStream::CudaStream(int device, Use use, std::string name, std::shared_ptr<DeviceState> state)
    : shared_(std::make_shared<Shared>()), use_(use), name_(std::move(name)) {
  shared_->device = device;
  shared_->of_device = std::move(state);
  check(cudaSetDevice(device), "the device of a stream");
  check(cudaStreamCreateWithFlags(&shared_->stream, cudaStreamNonBlocking), "a stream");
}

CudaStream::~CudaStream() {
  cudaStreamSynchronize(shared_->stream);
  shared_->held->clear();
  cudaStreamDestroy(shared_->stream);
}

std::shared_ptr<CudaStream::Marker> CudaStream::mark() {
  check(cudaSetDevice(shared_->device), "the device of an event");  // of the calling thread
  return std::make_shared<Marker>(shared_, shared_->held->mark());
}

void CudaStream::enqueue(std::string_view operation, const std::function<void()>& task) {
  check(cudaSetDevice(shared_->device), operation);  // of the calling thread
  task();
  check(cudaGetLastError(), operation);
  if (synchronous_) check(cudaStreamSynchronize(shared_->stream), operation);
}

Event CudaStream::submit(std::function<void()> task) { return submit_with(std::move(task), nullptr); }

Event CudaStream::submit_with(std::function<void()> task, std::shared_ptr<const void> host_memory) {
  enqueue(name_, task);
  const auto marker = mark();
  if (use_ == Use::other) shared_->held->hold(marker->number(), std::move(task));
  if (host_memory) shared_->held->hold_host(marker->number(), std::move(host_memory));
  return Event(marker);
}

void CudaStream::wait(const Event& event) {
  const auto* const marker = dynamic_cast<const Marker*>(event.state().get());
  if (marker == nullptr) {
    if (event.state()) shared_->of_device->count_wait();
    return event.wait();
  }
  marker->hold_up(*shared_, use_);
}

Event CudaStream::record() { return Event(mark()); }

int64_t CudaStream::waits_of(std::thread::id thread) const {
  const std::lock_guard lock(shared_->mutex);
  const auto found = shared_->waits.find(thread);
  return found == shared_->waits.end() ? 0 : found->second;
}

void CudaStream::copy_bytes(const std::byte* from, std::byte* to, size_t count) {
  check(cudaMemcpyAsync(to, from, count, cudaMemcpyDefault, shared_->stream), "a copy");
}

void CudaStream::clear_bytes(std::byte* at, size_t count) {
  check(cudaMemsetAsync(at, 0, count, shared_->stream), "clearing");
}

void CudaStream::poison_bytes(std::byte* at, size_t count) {
  check(cudaMemsetAsync(at, 0xFF, count, shared_->stream), "poisoning");
}

}  // namespace nought::cuda
