// ThreadGroup: where the ranks of a thread communicator meet, see each other's tensors, and leave together.
//
// A collective is one round: a rank publishes its tensors, meets the others, works on their memory without waiting, and
// leaves. No rank leaves a round while a peer may still read its memory. A failure ends all groups of the world: ranks
// that wait, or that come later, get a PeerError.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "nought/comm/transport.h"

namespace nought {

/// What all groups of one set of thread ranks share: one lock, which is enough as rounds are rare and short, and the
/// first failure.
class ThreadWorld {
 public:
  explicit ThreadWorld(int size) : finished_(static_cast<size_t>(size), false) {}
  int size() const { return static_cast<int>(finished_.size()); }

  /// Notes that the rank failed. All ranks that wait in a collective, or that come to one, are told why. The first
  /// failure is kept.
  void fail_rank(int rank, std::string_view why);
  /// Notes that the rank will call no further collective.
  void finish_rank(int rank);
  /// "rank 2 failed: ..."; "" if none has.
  std::string failure();

 private:
  friend class ThreadGroup;
  void note_failure(int rank, std::string_view why);  // under mutex_

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string failure_;  // empty: none
  std::vector<bool> finished_;
};

class ThreadGroup {
 public:
  /// What a rank shows its peers for one round, until leave() returns.
  struct Slot {
    bool present = false;
    const Call* call = nullptr;
    const Collective* collective = nullptr;
    int color = 0, key = 0;  // of a split
  };

  ThreadGroup(std::shared_ptr<ThreadWorld> world, std::vector<int> world_ranks);
  int size() const { return static_cast<int>(world_ranks_.size()); }
  ThreadWorld& world() { return *world_; }
  int world_rank(int rank) const { return world_ranks_[static_cast<size_t>(rank)]; }

  /// Publishes the slot, waits for all ranks, and checks that they issued the same call.
  void meet(int rank, const Slot& slot);
  /// What the rank published in this round. Call it between meet() and leave().
  const Slot& slot(int rank) const { return slots_[static_cast<size_t>(rank)]; }
  /// Waits until all ranks are done with each other's memory. It cannot fail, since no rank waits between meet() and
  /// this.
  void leave();

  struct Message {
    Tensor values;
    bool read = false;  // under the world's lock
  };
  /// Leaves a message for another rank.
  std::shared_ptr<Message> post(int source, int destination, int tag, Tensor values);
  /// Waits for the next message from `source` with this tag.
  std::shared_ptr<Message> take(const Call& call, int source, int destination, int tag);
  /// Tells the sender of a message that it was read.
  void note_read(Message& message);
  /// Waits until the message to `destination` was read.
  void await_reader(const Call& call, const Message& message, int destination);

  /// The group of this color; all its ranks get the same object. Call it between meet() and leave() of a split.
  std::shared_ptr<ThreadGroup> subgroup(int color, const std::vector<int>& ranks);

 private:
  void require_whole(const Call& call) const;
  /// Waits until done(): PeerError if a rank failed before, or if `peer` has ended. Under the world's lock.
  template <class Done>
  void wait_for(std::unique_lock<std::mutex>& lock, const Call& call, int peer, Done done);
  /// A rank that ended without coming to this round, or -1.
  int missing_rank() const;
  void check_same_call() const;

  std::shared_ptr<ThreadWorld> world_;
  std::vector<int> world_ranks_;
  std::vector<Slot> slots_;
  int arrived_ = 0, working_ = 0;
  uint64_t round_ = 0;
  std::map<int, std::shared_ptr<ThreadGroup>> subgroups_;
  std::map<std::tuple<int, int, int>, std::deque<std::shared_ptr<Message>>> mail_;  // by source, destination, tag
};

}  // namespace nought
