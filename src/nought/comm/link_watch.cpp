#include "nought/comm/link_watch.h"

#include <algorithm>
#include <utility>

namespace nought {

LinkWatch::LinkWatch(LinkedDevice& device) : device_(device), thread_([this] { watch(); }) {}

LinkWatch::~LinkWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void LinkWatch::join(DeviceGroup& group, PeerFailure peer_failure) {
  const std::lock_guard lock(mutex_);
  members_[&group].peer_failure = std::move(peer_failure);
  if (is_cut_) group.abort();
}

void LinkWatch::leave(DeviceGroup& group) {
  std::map<DeviceGroup*, Member>::node_type left;  // goes outside of the lock
  const std::lock_guard lock(mutex_);
  left = members_.extract(&group);
  if (!left) return;
  for (const Flight& flight : left.mapped().flights)
    if (flight.call.recorder) flight.call.recorder->end(flight.call.ticket, is_cut_);
}

void LinkWatch::add(DeviceGroup& group, const Call& call, const Event& done) {
  {
    const std::lock_guard lock(mutex_);
    members_[&group].flights.push_back({call, done});
  }
  changed_.notify_all();
}

void LinkWatch::cut(const std::exception_ptr& why) {
  device_.fail(why);
  const std::lock_guard lock(mutex_);
  if (std::exchange(is_cut_, true)) return;
  for (const auto& [group, member] : members_) group->abort();
}

bool LinkWatch::is_idle() const {
  return is_cut_ ||
         std::all_of(members_.begin(), members_.end(), [](const auto& each) { return each.second.flights.empty(); });
}

std::exception_ptr LinkWatch::look(DeviceGroup& group, Member& member) const {
  while (!member.flights.empty() && member.flights.front().done.ready()) {
    const Call call = member.flights.front().call;
    if (call.recorder) call.recorder->end(call.ticket, /*failed=*/false);
    member.flights.pop_front();
    // It is the next one's turn: until now that one waited for this one.
    if (!member.flights.empty()) {
      Call& next = member.flights.front().call;
      next.deadline = std::max(next.deadline, std::chrono::steady_clock::now() + next.timeout);
    }
  }
  if (member.flights.empty()) return nullptr;
  const Call& call = member.flights.front().call;
  try {
    if (auto failure = member.peer_failure(call)) return failure;
    if (const std::string fault = group.fault(); !fault.empty())
      fail<CommError>("{}", call.with_mismatch(fmt::format("{} failed on rank {}: {}", call, call.rank, fault)));
    if (std::chrono::steady_clock::now() > call.deadline) call.fail_timeout();
  } catch (const std::exception&) {
    return std::current_exception();
  }
  return nullptr;
}

void LinkWatch::watch() {
  constexpr std::chrono::milliseconds kBetween(2);
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (is_idle()) {
      changed_.wait(lock, [&] { return stopping_ || !is_idle(); });
      continue;
    }
    std::exception_ptr why;
    for (auto& [group, member] : members_)
      if (!why) why = look(*group, member);
    if (why) {
      lock.unlock();
      cut(why);
      lock.lock();
      continue;
    }
    changed_.wait_for(lock, kBetween, [&] { return stopping_; });
  }
}

}  // namespace nought
