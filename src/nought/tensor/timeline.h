// Timeline: records what ran when on a rank, for the breakdown of a step and for traces.
//
// Design goals: code records what it does in one line (a TimedScope), which costs one branch while nothing is recorded.
// Non-goals: the clocks of other ranks. Whoever shows several ranks together aligns their times.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nought {

enum class TraceEventKind : uint8_t {
  phase,       // a phase of a step: "data", "forward", "backward" or "optimizer"
  pass,        // a pass of a micro-batch through a pipeline stage: "F3.1"; what it waits for before is no part of it
  unit,        // one pass of a Unit: "block.3, backward"
  part,        // a named part of a Unit's pass: "attention"
  operation,   // one run of a kernel: "MatMul 4096 x 768 x 3072"
  wait,        // the computing thread waits for a task of another stream
  collective,  // a collective on the communication stream
};

/// Something that ran on this rank, and when it began and ended.
struct TraceEvent {
  using Clock = std::chrono::steady_clock;
  TraceEventKind kind = TraceEventKind::phase;
  std::string name;
  Clock::time_point begin, end;
  int64_t bytes = 0;  // a collective: the size of its whole tensor; an operation: the least that it moves; else 0
  double flops = 0;   // an operation: its floating-point operations; else 0
  std::string arguments = {};  // an operation: its tensors and parameters, in words; a collective: what it is about
  std::string group = {};      // a collective: whose stream it runs on; else empty

  double seconds() const { return std::chrono::duration<double>(end - begin).count(); }
};

/// A point in the work of a device: when the device gets there.
class Moment {
 public:
  Moment() = default;
  virtual ~Moment() = default;
  Moment(const Moment&) = delete;
  Moment& operator=(const Moment&) = delete;
  /// Waits until it is there.
  virtual TraceEvent::Clock::time_point time() = 0;
};

/// What a Stream may be too: one whose device tells the time.
class TimedStream {
 public:
  virtual ~TimedStream() = default;
  /// The point behind all work that was submitted so far.
  virtual std::shared_ptr<Moment> moment() = 0;
};

class Stream;

/// The events of one rank. Thread safe.
class Timeline {
 public:
  /// Events of the computing thread begin and end when the device of this stream gets there, if it is a TimedStream:
  /// the host goes on as soon as it has submitted the work. Collectives have the time of their own thread.
  void follow(const std::shared_ptr<Stream>& compute);
  /// Where an event of this kind begins or ends now; null: at the time that it is for the host.
  std::shared_ptr<Moment> moment(TraceEventKind kind) const {
    return compute_ == nullptr || kind == TraceEventKind::collective ? nullptr : compute_->moment();
  }
  /// Starts to record.
  void start() { recording_ = true; }
  /// Stops: what begins from now on is not recorded.
  void stop() { recording_ = false; }
  /// Removes and returns the events that ended since the last call, in the order of their ends. Waits for the device.
  std::vector<TraceEvent> take();
  bool recording() const { return recording_.load(std::memory_order_relaxed); }
  /// The event, or with moments one that lasts from one to the other.
  void add(TraceEvent event, std::shared_ptr<Moment> begin = nullptr, std::shared_ptr<Moment> end = nullptr);

 private:
  struct Timed {
    TraceEvent event;
    std::shared_ptr<Moment> begin, end;
  };
  std::shared_ptr<TimedStream> compute_;
  std::atomic<bool> recording_ = false;
  std::mutex mutex_;
  std::vector<Timed> events_;
};

/// Records an event that lasts as long as this object. The timeline may be null. `name` must outlive the object.
class TimedScope {
 public:
  TimedScope(Timeline* timeline, TraceEventKind kind, std::string_view name, int64_t bytes = 0)
      : timeline_(timeline != nullptr && timeline->recording() ? timeline : nullptr),
        kind_(kind),
        name_(name),
        bytes_(bytes) {
    if (timeline_) begin_ = TraceEvent::Clock::now(), begins_ = timeline_->moment(kind);
  }
  ~TimedScope() {
    if (timeline_)
      timeline_->add({kind_, std::string(name_), begin_, TraceEvent::Clock::now(), bytes_, 0, about_, group_}, begins_,
                     timeline_->moment(kind_));
  }
  /// True if what lasts as long as this object is recorded.
  bool recording() const { return timeline_ != nullptr; }
  /// What the event is about, and the group of a collective.
  void describe(std::string about, std::string group) { about_ = std::move(about), group_ = std::move(group); }
  TimedScope(const TimedScope&) = delete;
  TimedScope& operator=(const TimedScope&) = delete;

 private:
  Timeline* timeline_;
  TraceEventKind kind_;
  std::string_view name_;
  int64_t bytes_;
  std::string about_, group_;
  TraceEvent::Clock::time_point begin_;
  std::shared_ptr<Moment> begins_;
};

}  // namespace nought
