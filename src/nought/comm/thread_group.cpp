#include "nought/comm/thread_group.h"

#include <algorithm>

#include "nought/comm/thread.h"

namespace nought {
namespace {

/// The most bytes of a tensor of which one rank does the parts of all. Larger ones are worth a thread each.
constexpr int64_t kDoneByOne = int64_t{64} << 10;

}  // namespace

void ThreadWorld::fail_rank(int rank, std::string_view why) {
  std::lock_guard lock(mutex_);
  note_failure(rank, why);
}

void ThreadWorld::note_failure(int rank, std::string_view why) {
  if (failure_.empty()) failure_ = fmt::format("rank {} failed: {}", rank, why);
  wake_all_groups();
}

void ThreadWorld::wake_all_groups() {
  std::lock_guard lock(groups_mutex_);
  for (std::condition_variable* each : groups_) each->notify_all();
}

void ThreadWorld::finish_rank(int rank) {
  std::lock_guard lock(mutex_);
  finished_[static_cast<size_t>(rank)] = true;
  wake_all_groups();
}

std::string ThreadWorld::failure() {
  std::lock_guard lock(mutex_);
  return failure_;
}

ThreadGroup::ThreadGroup(std::shared_ptr<ThreadWorld> world, std::vector<int> world_ranks)
    : world_(std::move(world)),
      world_ranks_(std::move(world_ranks)),
      slots_(world_ranks_.size()),
      present_(world_ranks_.size()) {
  std::lock_guard lock(world_->groups_mutex_);
  world_->groups_.insert(&changed_);
}

ThreadGroup::~ThreadGroup() {
  std::lock_guard lock(world_->groups_mutex_);
  world_->groups_.erase(&changed_);
}

void ThreadGroup::require_whole(const Call& call) const {
  if (!world_->failure_.empty()) {
    fail<PeerError>("{} cannot finish on rank {}: {}", call.str(), call.rank, world_->failure_);
  }
}

int ThreadGroup::missing_rank() const {
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (present_[i] == nullptr && world_->finished_[static_cast<size_t>(world_ranks_[i])]) return world_ranks_[i];
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
  Presence mine;
  std::unique_lock lock(world_->mutex_);
  require_whole(call);
  slots_[static_cast<size_t>(rank)] = slot;
  present_[static_cast<size_t>(rank)] = &mine;
  if (++arrived_ < size()) {
    await_all(lock, rank, call, mine);
  } else if (call.bytes <= kDoneByOne) {
    let_all(Stage::together);
    lock.unlock();
    do_all_parts();
    lock.lock();
    end_round();
  } else {
    working_ = size();
    let_all(Stage::each);
    changed_.notify_all();
  }
  if (mine.stage == Stage::each) {
    lock.unlock();
    do_own_part(rank, slot, mine);
  } else {
    changed_.wait(lock, [&] { return mine.stage == Stage::done; });
  }
  if (mine.failure) std::rethrow_exception(mine.failure);
}

void ThreadGroup::await_all(std::unique_lock<std::mutex>& lock, int rank, const Call& call, const Presence& mine) {
  const bool woken = changed_.wait_until(lock, call.deadline, [&] {
    return mine.stage != Stage::coming || !world_->failure_.empty() || missing_rank() >= 0;
  });
  if (mine.stage != Stage::coming) return;
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

void ThreadGroup::let_all(Stage stage) {
  arrived_ = 0;
  for (Presence* each : present_) each->stage = stage;
}

void ThreadGroup::do_all_parts() {
  try {
    check_same_call();
  } catch (...) {
    for (Presence* each : present_) each->failure = std::current_exception();
    return;
  }
  for (int rank = 0; rank < size(); ++rank) do_part(rank, slot(rank), *present_[static_cast<size_t>(rank)]);
}

void ThreadGroup::do_own_part(int rank, const Slot& slot, Presence& mine) {
  try {
    check_same_call();
    do_part(rank, slot, mine);
  } catch (const CommError&) {  // of the check, which says the same to all
    mine.failure = std::current_exception();
  }
  std::unique_lock lock(world_->mutex_);
  if (--working_ > 0) {
    changed_.wait(lock, [&] { return mine.stage == Stage::done; });
  } else {
    end_round();
  }
}

void ThreadGroup::do_part(int rank, const Slot& slot, Presence& presence) {
  try {
    (*slot.part)();
  } catch (const std::exception& error) {
    world_->fail_rank(world_rank(rank), error.what());
    presence.failure = std::current_exception();
  } catch (...) {
    world_->fail_rank(world_rank(rank), "an unknown exception");
    presence.failure = std::current_exception();
  }
}

void ThreadGroup::end_round() {
  for (Presence*& each : present_) each->stage = Stage::done, each = nullptr;
  subgroups_.clear();
  std::fill(slots_.begin(), slots_.end(), Slot());
  changed_.notify_all();
}

std::shared_ptr<ThreadGroup::Message> ThreadGroup::post(int source, int destination, int tag, Tensor values) {
  auto message = std::make_shared<Message>(Message{std::move(values)});
  std::lock_guard lock(world_->mutex_);
  mail_[{source, destination, tag}].push_back(message);
  changed_.notify_all();
  return message;
}

template <class Done>
void ThreadGroup::wait_for(std::unique_lock<std::mutex>& lock, const Call& call, int peer, Done done) {
  require_whole(call);
  const auto ended = [&] { return world_->finished_[static_cast<size_t>(world_rank(peer))]; };
  const bool woken =
      changed_.wait_until(lock, call.deadline, [&] { return done() || !world_->failure_.empty() || ended(); });
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
  changed_.notify_all();
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
