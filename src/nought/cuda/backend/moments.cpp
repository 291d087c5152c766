// When a stream gets to a point in its work, on the clock of the host.
//
// A GPU tells the milliseconds between two events as a float. So a moment counts from an anchor, an event whose time
// the host knows because it has waited for it, and there is a new anchor before a float gets coarse.
#include <cmath>

#include "nought/cuda/backend/stream.h"

namespace nought::cuda {

namespace {

using Clock = TraceEvent::Clock;

/// An event that keeps the time.
class TimedEvent {
 public:
  explicit TimedEvent(cudaStream_t stream) {
    check(cudaEventCreateWithFlags(&event_, cudaEventDefault), "an event");
    check(cudaEventRecord(event_, stream), "recording an event");
  }
  ~TimedEvent() { cudaEventDestroy(event_); }
  TimedEvent(const TimedEvent&) = delete;
  TimedEvent& operator=(const TimedEvent&) = delete;

  void wait() const { check(cudaEventSynchronize(event_), "waiting for a moment"); }
  double milliseconds_since(const TimedEvent& earlier) const {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, earlier.event_, event_), "the time of an event");
    return double{milliseconds};
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

struct CudaStream::Anchor {
  /// The stream is idle first, so that the host sees the event as soon as it is there.
  explicit Anchor(cudaStream_t stream) : event((TimedEvent(stream).wait(), stream)) {
    event.wait();
    at = Clock::now();
  }
  TimedEvent event;
  Clock::time_point at;
};

std::shared_ptr<Moment> CudaStream::moment() {
  class OfStream final : public Moment {
   public:
    OfStream(cudaStream_t stream, std::shared_ptr<Anchor> anchor) : event_(stream), anchor_(std::move(anchor)) {}
    Clock::time_point time() override {
      event_.wait();
      const std::chrono::duration<double, std::milli> since(event_.milliseconds_since(anchor_->event));
      return anchor_->at + std::chrono::duration_cast<Clock::duration>(since);
    }

   private:
    TimedEvent event_;
    std::shared_ptr<Anchor> anchor_;
  };
  constexpr std::chrono::seconds kCoarse(10);  // a float of as many milliseconds has steps of a microsecond
  check(cudaSetDevice(shared_->device), "the device of a moment");
  const std::lock_guard lock(shared_->mutex);
  if (!shared_->anchor || Clock::now() - shared_->anchor->at > kCoarse)
    shared_->anchor = std::make_shared<Anchor>(shared_->stream);
  return std::make_shared<OfStream>(shared_->stream, shared_->anchor);
}

}  // namespace nought::cuda
