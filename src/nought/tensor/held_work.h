// HeldWork: what the tasks of a device's stream hold, and when they let it go.
//
// Such a task only enqueues: its tensors must outlast its call. When they may go follows from the order of the
// program's calls alone, and never from how fast the device is. So a dry run without a device counts the same bytes.
//
// - Memory of the device is given in the order of the compute stream: what that stream was given holds none. Work of
//   another stream lets it go when the compute stream waits for that stream, since whoever gets the block comes later.
// - Memory of the host has no order. Work of any stream lets it go when the host knows that it is done: the host has
//   waited for it, or for a stream that has waited for it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace nought {

/// The held work of one stream. Thread safe. Points in the stream are numbered; they may outlive it.
class HeldWork {
 public:
  /// The number of a point behind all work so far.
  uint64_t mark();
  /// Holds the closure of the work before a point, with its memory of the device.
  void hold(uint64_t point, std::function<void()> task);
  /// Holds memory of the host that the work before a point reads or writes.
  void hold_host(uint64_t point, std::shared_ptr<const void> memory);

  /// Later work of this stream waits for a point of another one.
  void follow(const std::shared_ptr<HeldWork>& other, uint64_t point);
  /// The compute stream waits for the point.
  void passed(uint64_t point);
  /// The host knows that the point is reached.
  void reached(uint64_t point);
  /// All work is done.
  void clear();

 private:
  struct Held {
    uint64_t point = 0;
    bool of_host = false;
    std::function<void()> task = {};
    std::shared_ptr<const void> memory = {};
  };
  /// What was waited for between two points.
  struct Followed {
    uint64_t after = 0;  // the last point before
    std::weak_ptr<HeldWork> other;
    uint64_t point = 0;
  };
  template <class F>
  std::vector<Held> taken_if(const F& may_go);

  std::mutex mutex_;
  uint64_t marked_ = 0;
  std::deque<Held> held_;
  std::deque<Followed> followed_;
};

}  // namespace nought
