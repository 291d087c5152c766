#include "nought/comm/thread_group.h"

#include <algorithm>

#include "nought/comm/thread.h"

namespace nought {

void ThreadWorld::fail_rank(int rank, std::string_view why) {
  std::lock_guard lock(mutex_);
  note_failure(rank, why);
}

void ThreadWorld::note_failure(int rank, std::string_view why) {
  if (failure_.empty()) failure_ = fmt::format("rank {} failed: {}", rank, why);
  changed_.notify_all();
}

void ThreadWorld::finish_rank(int rank) {
  std::lock_guard lock(mutex_);
  finished_[static_cast<size_t>(rank)] = true;
  changed_.notify_all();
}

std::string ThreadWorld::failure() {
  std::lock_guard lock(mutex_);
  return failure_;
}

ThreadGroup::ThreadGroup(std::shared_ptr<ThreadWorld> world, std::vector<int> world_ranks)
    : world_(std::move(world)), world_ranks_(std::move(world_ranks)), slots_(world_ranks_.size()) {}

void ThreadGroup::require_whole(const Call& call) const {
  if (!world_->failure_.empty()) {
    fail<PeerError>("{} cannot finish on rank {}: {}", call.str(), call.rank, world_->failure_);
  }
}

int ThreadGroup::missing_rank() const {
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i].present && world_->finished_[static_cast<size_t>(world_ranks_[i])]) return world_ranks_[i];
  }
  return -1;
}

void ThreadGroup::check_same_call() const {
  const Slot& first = slots_[0];
  for (size_t i = 1; i < slots_.size(); ++i) {
    const Slot& other = slots_[i];
    const auto root_of = [](const Slot& slot) { return std::max(slot.collective->root, 0); };
    const bool same = first.call->name == other.call->name && first.call->dtype == other.call->dtype &&
                      root_of(first) == root_of(other) &&
                      (first.call->bytes == other.call->bytes || sizes_differ(first.collective->kind));
    require<CommError>(same, "rank 0 issued {} (root {}), rank {} issued {} (root {}): ranks must issue the same calls",
                       first.call->str(), root_of(first), i, other.call->str(), root_of(other));
  }
}

void ThreadGroup::meet(int rank, const Slot& slot) {
  const Call& call = *slot.call;
  {
    std::unique_lock lock(world_->mutex_);
    require_whole(call);
    slots_[static_cast<size_t>(rank)] = slot;
    slots_[static_cast<size_t>(rank)].present = true;
    if (++arrived_ == size()) {
      arrived_ = 0;
      working_ = size();
      ++round_;
      world_->changed_.notify_all();
    } else {
      const uint64_t mine = round_;
      const bool woken = world_->changed_.wait_until(
          lock, call.deadline, [&] { return round_ != mine || !world_->failure_.empty() || missing_rank() >= 0; });
      if (round_ == mine) {
        try {
          require_whole(call);
          if (!woken) call.fail_timeout();
          fail<PeerError>("{} cannot finish on rank {}: rank {} has ended", call.str(), call.rank, missing_rank());
        } catch (const Error& error) {
          // Before the lock goes: a late peer must not complete a round that this rank has left.
          world_->note_failure(world_rank(rank), error.what());
          throw;
        }
      }
    }
  }
  try {
    check_same_call();
  } catch (...) {
    leave();
    throw;
  }
}

void ThreadGroup::leave() {
  std::unique_lock lock(world_->mutex_);
  if (--working_ > 0) {
    world_->changed_.wait(lock, [&] { return working_ == 0; });  // the next round needs this rank to begin
    return;
  }
  subgroups_.clear();
  for (Slot& slot : slots_) slot = {};
  world_->changed_.notify_all();
}

std::shared_ptr<ThreadGroup::Message> ThreadGroup::post(int source, int destination, int tag, Tensor values) {
  auto message = std::make_shared<Message>(Message{std::move(values)});
  std::lock_guard lock(world_->mutex_);
  mail_[{source, destination, tag}].push_back(message);
  world_->changed_.notify_all();
  return message;
}

template <class Done>
void ThreadGroup::wait_for(std::unique_lock<std::mutex>& lock, const Call& call, int peer, Done done) {
  require_whole(call);
  const auto ended = [&] { return world_->finished_[static_cast<size_t>(world_rank(peer))]; };
  const bool woken =
      world_->changed_.wait_until(lock, call.deadline, [&] { return done() || !world_->failure_.empty() || ended(); });
  if (done()) return;
  require_whole(call);
  if (!woken) call.fail_timeout();
  fail<PeerError>("{} cannot finish on rank {}: rank {} has ended", call.str(), call.rank, world_rank(peer));
}

std::shared_ptr<ThreadGroup::Message> ThreadGroup::take(const Call& call, int source, int destination, int tag) {
  std::unique_lock lock(world_->mutex_);
  std::deque<std::shared_ptr<Message>>& box = mail_[{source, destination, tag}];
  wait_for(lock, call, source, [&] { return !box.empty(); });
  std::shared_ptr<Message> message = std::move(box.front());
  box.pop_front();
  return message;
}

void ThreadGroup::note_read(Message& message) {
  message.values = {};  // the sender's memory is free before it is told
  std::lock_guard lock(world_->mutex_);
  message.read = true;
  world_->changed_.notify_all();
}

void ThreadGroup::await_reader(const Call& call, const Message& message, int destination) {
  std::unique_lock lock(world_->mutex_);
  wait_for(lock, call, destination, [&] { return message.read; });
}

std::shared_ptr<ThreadGroup> ThreadGroup::subgroup(int color, const std::vector<int>& ranks) {
  std::vector<int> world_ranks;
  for (int rank : ranks) world_ranks.push_back(world_rank(rank));
  std::lock_guard lock(world_->mutex_);
  std::shared_ptr<ThreadGroup>& group = subgroups_[color];
  if (!group) group = std::make_shared<ThreadGroup>(world_, std::move(world_ranks));
  return group;
}

}  // namespace nought
