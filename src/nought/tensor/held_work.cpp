#include "nought/tensor/held_work.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace nought {

uint64_t HeldWork::mark() {
  const std::lock_guard lock(mutex_);
  return ++marked_;
}

void HeldWork::hold(uint64_t point, std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  held_.push_back({.point = point, .task = std::move(task)});
}

void HeldWork::hold_host(uint64_t point, std::shared_ptr<const void> memory) {
  const std::lock_guard lock(mutex_);
  held_.push_back({.point = point, .of_host = true, .memory = std::move(memory)});
}

void HeldWork::follow(const std::shared_ptr<HeldWork>& other, uint64_t point) {
  if (other.get() == this) return;
  const std::lock_guard lock(mutex_);
  followed_.push_back({marked_, other, point});
}

/// Takes them out. They go where the caller lets go: outside of the lock, as buffers return to their Memory.
template <class F>
std::vector<HeldWork::Held> HeldWork::taken_if(const F& may_go) {
  const std::lock_guard lock(mutex_);
  const auto kept = std::stable_partition(held_.begin(), held_.end(), [&](const Held& held) { return !may_go(held); });
  std::vector<Held> taken(std::make_move_iterator(kept), std::make_move_iterator(held_.end()));
  held_.erase(kept, held_.end());
  return taken;
}

void HeldWork::passed(uint64_t point) {
  taken_if([&](const Held& held) { return held.point <= point && !held.of_host; });
}

void HeldWork::reached(uint64_t point) {
  taken_if([&](const Held& held) { return held.point <= point; });
  std::vector<Followed> known;
  {
    const std::lock_guard lock(mutex_);
    while (!followed_.empty() && followed_.front().after < point) {
      known.push_back(std::move(followed_.front()));
      followed_.pop_front();
    }
  }
  for (const Followed& each : known)
    if (const auto other = each.other.lock()) other->reached(each.point);
}

void HeldWork::clear() {
  taken_if([](const Held&) { return true; });
}

}  // namespace nought
