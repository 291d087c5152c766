// When a stream gets to a point in its work, on the clock of the host.
//
// A GPU tells the milliseconds between two events as a float. So a moment counts from an anchor, an event whose time
// the host knows because it has waited for it, and there is a new anchor before a float gets coarse. The compute stream
// is waited for to get one. Another one may wait for other ranks, which wait for this host: its first anchor is made
// before it has any work, and a later one is a moment whose time somebody has asked for.
#include <chrono>
#include <memory>
#include <utility>

#include "nought/cuda/backend/stream.h"

namespace nought::cuda {

namespace {

using Clock = TraceEvent::Clock;

constexpr std::chrono::seconds kCoarse(10);  // a float of as many milliseconds has steps of a microsecond

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
  explicit Anchor(cudaStream_t stream)
      : event((TimedEvent(stream).wait(), std::make_shared<const TimedEvent>(stream))) {
    event->wait();
    at = Clock::now();
  }
  Anchor(std::shared_ptr<const TimedEvent> known, Clock::time_point when) : event(std::move(known)), at(when) {}
  std::shared_ptr<const TimedEvent> event;
  Clock::time_point at;
};

std::shared_ptr<Moment> CudaStream::moment() {
  class OfStream final : public Moment {
   public:
    OfStream(std::shared_ptr<Shared> stream, std::shared_ptr<Anchor> anchor, bool renews)
        : event_(std::make_shared<const TimedEvent>(stream->stream)),
          stream_(renews ? std::move(stream) : nullptr),
          anchor_(std::move(anchor)) {}
    Clock::time_point time() override {
      event_->wait();
      const std::chrono::duration<double, std::milli> since(event_->milliseconds_since(*anchor_->event));
      const Clock::time_point at = anchor_->at + std::chrono::duration_cast<Clock::duration>(since);
      if (stream_ && at - anchor_->at > kCoarse) {
        const std::lock_guard lock(stream_->mutex);
        if (at > stream_->anchor->at) stream_->anchor = std::make_shared<Anchor>(event_, at);
      }
      return at;
    }

   private:
    std::shared_ptr<const TimedEvent> event_;
    std::shared_ptr<Shared> stream_;  // null unless this may be its next anchor
    std::shared_ptr<Anchor> anchor_;
  };
  check(cudaSetDevice(shared_->device), "the device of a moment");
  const std::lock_guard lock(shared_->mutex);
  if (!shared_->anchor || (use_ == Use::compute && Clock::now() - shared_->anchor->at > kCoarse))
    shared_->anchor = std::make_shared<Anchor>(shared_->stream);
  return std::make_shared<OfStream>(shared_, shared_->anchor, use_ == Use::other);
}

}  // namespace nought::cuda
