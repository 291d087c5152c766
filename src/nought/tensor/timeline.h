// Timeline: what ran when on a rank, for the breakdown of a step and for traces of it.
//
// Design goals: whoever does something says so in one line (a TimedScope), and pays a branch while nobody records.
// Non-goals: clocks of other ranks; who shows several ranks together brings their times in line.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace nought {

enum class SpanKind : uint8_t {
  phase,       // of a step: forward, backward, optimizer
  unit,        // a Unit's pass: "block.3, backward"
  part,        // of a Unit's pass: "attention"
  operation,   // a kernel: "MatMul 4096 x 768 x 3072"
  wait,        // of the computing thread, for the event of another stream
  collective,  // on the communication stream
};

struct Span {
  using Clock = std::chrono::steady_clock;
  SpanKind kind = SpanKind::phase;
  std::string name;
  Clock::time_point begin, end;
  int64_t bytes = 0;           // of a collective's whole tensor; that an operation moves at least
  double flops = 0;            // of an operation
  std::string arguments = {};  // of an operation: its tensors and parameters, in words

  double seconds() const { return std::chrono::duration<double>(end - begin).count(); }
};

/// Thread safe.
class Timeline {
 public:
  /// Records from now on.
  void start() { recording_ = true; }
  /// Records nothing that begins from now on.
  void stop() { recording_ = false; }
  /// What ended since the last call, in that order. What is under way is for the next one.
  std::vector<Span> take();
  bool recording() const { return recording_.load(std::memory_order_relaxed); }
  void add(Span span);

 private:
  std::atomic<bool> recording_ = false;
  std::mutex mutex_;
  std::vector<Span> spans_;
};

/// From its construction to its end, on a timeline that may be null. `name` outlives it.
class TimedScope {
 public:
  TimedScope(Timeline* timeline, SpanKind kind, std::string_view name, int64_t bytes = 0)
      : timeline_(timeline != nullptr && timeline->recording() ? timeline : nullptr),
        kind_(kind),
        name_(name),
        bytes_(bytes) {
    if (timeline_) begin_ = Span::Clock::now();
  }
  ~TimedScope() {
    if (timeline_) timeline_->add({kind_, std::string(name_), begin_, Span::Clock::now(), bytes_});
  }
  TimedScope(const TimedScope&) = delete;
  TimedScope& operator=(const TimedScope&) = delete;

 private:
  Timeline* timeline_;
  SpanKind kind_;
  std::string_view name_;
  int64_t bytes_;
  Span::Clock::time_point begin_;
};

}  // namespace nought
