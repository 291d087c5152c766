// CudaStream: a stream of CUDA behind the interface of Stream.
//
// A task is called at once, on the thread that submits it, and enqueues; the host goes on. Waiting for another
// CudaStream's event happens on the device, waiting for a task of the host on the host.
//
// Memory: blocks are given in the order of the compute stream. What it has enqueued needs nobody to hold its blocks:
// who gets one next enqueues behind it. So another stream waits for the compute stream before it touches what was
// allocated since. What tasks hold, and how long, is that of HeldWork: it depends on the order of calls and not on
// timing.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "nought/cuda/backend/runtime.h"
#include "nought/tensor/held_work.h"
#include "nought/tensor/stream.h"
#include "nought/tensor/timeline.h"

namespace nought::cuda {

/// What the streams of a device share: a failure that none of its operations would report, and how often threads have
/// waited for any of them.
struct DeviceState {
  std::mutex mutex;
  std::exception_ptr failure = {};
  std::map<std::thread::id, int64_t> waits = {};

  void count_wait() {
    const std::lock_guard lock(mutex);
    ++waits[std::this_thread::get_id()];
  }
};

class CudaStream final : public Stream, public TimedStream {
 public:
  enum class Use : uint8_t { compute, other };
  /// DeviceError if there is no device of this number.
  CudaStream(int device, Use use, std::string name,
             std::shared_ptr<DeviceState> state = std::make_shared<DeviceState>());
  /// Waits until all is done.
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  bool runs_inline() const override { return false; }
  Event submit(std::function<void()> task) override;
  Event submit_with(std::function<void()> task, std::shared_ptr<const void> host_memory) override;
  /// As submit(), without an Event. DeviceError that names the operation if CUDA refuses what it enqueues.
  void enqueue(std::string_view operation, const std::function<void()>& task);
  void wait(const Event& event) override;
  Event record() override;
  /// By events of CUDA, beside the clock of the host; see moments.cpp.
  std::shared_ptr<Moment> moment() override;
  int64_t waits_of(std::thread::id thread) const override;
  void copy_bytes(const std::byte* from, std::byte* to, size_t count) override;
  void clear_bytes(std::byte* at, size_t count) override;
  /// Every byte of the block becomes 0xFF, which is NaN in every float dtype.
  void poison_bytes(std::byte* at, size_t count);

  cudaStream_t handle() const { return shared_->stream; }
  /// From now on the host waits after every operation: a failure is then thrown by the one that made it.
  void set_synchronous(bool synchronous) { synchronous_ = synchronous; }

 private:
  class Marker;
  struct Anchor;
  /// What Events share with their stream, and may outlive it by.
  struct Shared {
    int device = 0;
    cudaStream_t stream = nullptr;
    const std::shared_ptr<HeldWork> held = std::make_shared<HeldWork>();
    std::mutex mutex;
    std::map<std::thread::id, int64_t> waits;
    std::shared_ptr<Anchor> anchor;  // of moments; under the mutex
    std::shared_ptr<DeviceState> of_device;
  };
  std::shared_ptr<Marker> mark();

  std::shared_ptr<Shared> shared_;
  const Use use_;
  const std::string name_;
  bool synchronous_ = false;
};

}  // namespace nought::cuda
