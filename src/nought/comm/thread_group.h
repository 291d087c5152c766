// ThreadGroup: where the ranks of a thread communicator meet, see each other's tensors, and leave together.
//
// A collective is one round: a rank publishes its tensors and what it does with those of all, and meets the others. If
// the tensors are large, each rank then does its part, and no rank leaves while a peer may still read its memory. If
// they are small, the last one to come does the parts of all, and so the others are woken once: where there are more
// ranks than cores, waking a thread takes longer than adding up its numbers. A failure ends all groups of the world:
// ranks that wait, or that come later, get a PeerError.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
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
  void wake_all_groups();

  std::mutex mutex_;
  std::string failure_;  // empty: none
  std::vector<bool> finished_;
  std::mutex groups_mutex_;                         // taken after mutex_, if that is
  std::set<std::condition_variable*> groups_ = {};  // where ranks of each group wait
};

class ThreadGroup {
 public:
  /// What a rank shows its peers for one round.
  struct Slot {
    const Call* call = nullptr;
    const Collective* collective = nullptr;
    int color = 0, key = 0;  // of a split
    /// What the rank does once all have come: it reads and writes tensors of all slots, and waits for nobody.
    const std::function<void()>* part = nullptr;
  };

  ThreadGroup(std::shared_ptr<ThreadWorld> world, std::vector<int> world_ranks);
  ~ThreadGroup();
  int size() const { return static_cast<int>(world_ranks_.size()); }
  ThreadWorld& world() { return *world_; }
  int world_rank(int rank) const { return world_ranks_[static_cast<size_t>(rank)]; }

  /// Publishes the slot, waits for all ranks, checks that they issued the same call, and returns when the parts of all
  /// are done. If this rank's part throws, the rank has failed.
  void meet(int rank, const Slot& slot);
  /// What the rank published in this round. A part calls it.
  const Slot& slot(int rank) const { return slots_[static_cast<size_t>(rank)]; }

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

  /// The group of this color; all its ranks get the same object. The part of a split calls it.
  std::shared_ptr<ThreadGroup> subgroup(int color, const std::vector<int>& ranks);

 private:
  enum class Stage { coming, together, each, done };
  /// How far the round is of one rank, which waits for it; under the world's lock.
  struct Presence {
    Stage stage = Stage::coming;
    std::exception_ptr failure = {};  // of its part, or of the round
  };

  void require_whole(const Call& call) const;
  /// Waits until done(): PeerError if a rank failed before, or if `peer` has ended. Under the world's lock.
  template <class Done>
  void wait_for(std::unique_lock<std::mutex>& lock, const Call& call, int peer, Done done);
  /// A rank that ended without coming to this round, or -1.
  int missing_rank() const;
  void check_same_call() const;
  /// Waits until the last one has come. Throws if that can not be.
  void await_all(std::unique_lock<std::mutex>& lock, int rank, const Call& call, const Presence& mine);
  /// All have come: the ranks go on to this stage.
  void let_all(Stage stage);
  /// Does the parts of all ranks.
  void do_all_parts();
  /// Does the part of this rank, and waits until all have done theirs. That cannot fail, since no part waits.
  void do_own_part(int rank, const Slot& slot, Presence& mine);
  void do_part(int rank, const Slot& slot, Presence& presence);
  void end_round();

  std::shared_ptr<ThreadWorld> world_;
  std::vector<int> world_ranks_;
  std::condition_variable changed_;  // with the world's lock
  std::vector<Slot> slots_;
  std::vector<Presence*> present_;  // null: the rank has not come
  int arrived_ = 0, working_ = 0;
  std::map<int, std::shared_ptr<ThreadGroup>> subgroups_;
  std::map<std::tuple<int, int, int>, std::deque<std::shared_ptr<Message>>> mail_;  // by source, destination, tag
};

}  // namespace nought
