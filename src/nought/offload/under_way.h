// UnderWay: transfers that have begun, and the tensors that they use.
//
// Design goal: these stay until the calling thread has waited. So what is in memory follows from the order of the
// calls, and never from a drive or a device.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <vector>

#include "nought/base/timing.h"
#include "nought/tensor/tensor.h"

namespace nought {

class UnderWay {
 public:
  /// One is used, made or freed while another one travels: whoever begins a transfer waits until fewer are under way.
  static constexpr size_t kMost = 2;

  /// key: names it for settle_of().
  void add(Event done, std::vector<Tensor> used, size_t key = 0) {
    entries_.push_back({std::move(done), std::move(used), key});
  }
  /// Waits for the oldest until at most so many are under way.
  void settle(size_t most = 0) {
    for (; entries_.size() > most; entries_.pop_front()) wait(entries_.front().done);
  }
  /// Waits for those with this key.
  void settle_of(size_t key) {
    std::erase_if(entries_, [&](const Entry& entry) {
      if (entry.key == key) wait(entry.done);
      return entry.key == key;
    });
  }
  void wait(const Event& event) {
    waited_ += seconds_of([&] { event.wait(); });
  }
  /// Seconds in which the calling thread waited.
  double waited() const { return waited_; }

 private:
  struct Entry {
    Event done;
    std::vector<Tensor> used;
    size_t key;
  };
  std::deque<Entry> entries_;  // the oldest first
  double waited_ = 0;
};

}  // namespace nought
