// Runs the schedules of all ranks of a pipeline without a model: passes take no time, messages have no contents.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "nought/engine/step_schedule.h"

namespace nought::test {

/// The strictest wire that a pipeline may meet. A rank runs its instructions in their order. What it receives before a
/// pass is begun while the pass before runs, and each receive ends only when all that the rank began before have ended.
/// A send that finds no receive waits in the sender's room; if that is full, the sender stops.
class ScheduleRun {
 public:
  /// room: of each pair of a sender and a receiver, in messages.
  ScheduleRun(const std::vector<StepSchedule>& schedules, bool v_shaped, int64_t room)
      : v_shaped_(v_shaped), room_(room), chunks_(schedules.front().chunks()) {
    for (const StepSchedule& schedule : schedules) ranks_.push_back({schedule.instructions()});
    for (size_t rank = 0; rank < ranks_.size(); ++rank) post(rank);
  }

  /// True if all ranks come to the end of their lists.
  bool ends() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank < ranks_.size(); ++rank)
        while (advance(rank)) moved = true;
    }
    return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.place == rank.list.size(); });
  }
  /// The most messages of a rank that were begun to be received and not yet read.
  int64_t most_received() const { return most_received_; }

  int64_t stage_of(int64_t chunk, int64_t rank) const {
    const auto count = static_cast<int64_t>(ranks_.size());
    return chunk * count + (v_shaped_ && chunk == 1 ? count - 1 - rank : rank);
  }
  int64_t rank_of(int64_t stage) const {
    const auto count = static_cast<int64_t>(ranks_.size());
    return v_shaped_ && stage >= count ? 2 * count - 1 - stage : stage % count;
  }

  /// Activation or gradient, micro-batch, the stage that reads it.
  using Message = std::tuple<bool, int64_t, int64_t>;
  using Messages = std::vector<Message>;
  /// What goes from each rank to each other: as the senders have it, and as the receivers do.
  std::pair<std::map<std::pair<int64_t, int64_t>, Messages>, std::map<std::pair<int64_t, int64_t>, Messages>>
  exchanged() const {
    std::map<std::pair<int64_t, int64_t>, Messages> sent, received;
    for (size_t index = 0; index < ranks_.size(); ++index) {
      const auto rank = static_cast<int64_t>(index);
      for (const Instruction& at : ranks_[index].list) {
        if (sends(at.action)) sent[{rank, peer_of(at, rank)}].push_back(message_of(at, rank));
        if (receives(at.action)) received[{peer_of(at, rank), rank}].push_back(message_of(at, rank));
      }
    }
    return {sent, received};
  }

 private:
  struct Rank {
    std::vector<Instruction> list;
    size_t place = 0, posted = 0;             // the next instruction; receives before this place have begun
    std::vector<Message> begun = {};          // to be received, in their order
    size_t ended = 0;                         // of them
    std::set<Message> received = {};          // those that ended
    std::set<Message> unread = {};            // those that no pass has read
    std::map<int64_t, int64_t> from = {};     // of them, by sender
    std::map<int64_t, int64_t> sent_to = {};  // by receiver
  };

  static bool is_activation(Action action) {
    return action == Action::forward || action == Action::send_activation || action == Action::receive_activation;
  }
  Message message_of(const Instruction& at, int64_t rank) const {
    const int64_t step = sends(at.action) ? (is_activation(at.action) ? 1 : -1) : 0;
    return {is_activation(at.action), at.micro_batch, stage_of(at.chunk, rank) + step};
  }
  int64_t peer_of(const Instruction& at, int64_t rank) const {
    const int64_t step = is_activation(at.action) == sends(at.action) ? 1 : -1;
    return rank_of(stage_of(at.chunk, rank) + step);
  }

  /// Begins all receives up to the pass behind the one that is next.
  void post(size_t index) {
    Rank& rank = ranks_[index];
    size_t end = rank.place;
    for (int passes = 0; end < rank.list.size(); ++end)
      if (is_pass(rank.list[end].action) && ++passes == 2) break;
    for (; rank.posted < end; ++rank.posted) {
      const Instruction& at = rank.list[rank.posted];
      if (!receives(at.action)) continue;
      const auto own = static_cast<int64_t>(index);
      rank.begun.push_back(message_of(at, own));
      rank.unread.insert(message_of(at, own));
      ++rank.from[peer_of(at, own)];
    }
    most_received_ = std::max(most_received_, static_cast<int64_t>(rank.unread.size()));
  }

  bool advance(size_t index) {
    Rank& rank = ranks_[index];
    if (rank.place == rank.list.size()) return false;
    const Instruction& at = rank.list[rank.place];
    if (is_pass(at.action)) {
      post(index);
      if (!reads(index, at)) return false;
    } else if (sends(at.action)) {
      const int64_t to = peer_of(at, static_cast<int64_t>(index));
      int64_t& sent = rank.sent_to[to];
      if (sent >= ranks_[static_cast<size_t>(to)].from[static_cast<int64_t>(index)] + room_) return false;
      ++sent;
      there_.insert(message_of(at, static_cast<int64_t>(index)));
    }
    ++rank.place;
    return true;
  }

  /// True if what the pass reads is there.
  bool reads(size_t index, const Instruction& at) {
    Rank& rank = ranks_[index];
    const auto own = static_cast<int64_t>(index);
    const int64_t stage = stage_of(at.chunk, own), before = at.action == Action::forward ? stage - 1 : stage + 1;
    const auto stages = static_cast<int64_t>(ranks_.size()) * chunks_;
    if (at.action != Action::weight_gradients && before >= 0 && before < stages) {
      const Message message = message_of(at, own);
      if (rank_of(before) == own) {
        if (!made_.contains({std::get<0>(message), at.micro_batch, before})) return false;
      } else {
        for (; rank.ended < rank.begun.size() && there_.contains(rank.begun[rank.ended]); ++rank.ended)
          rank.received.insert(rank.begun[rank.ended]);
        if (!rank.received.contains(message)) return false;
        rank.unread.erase(message);
      }
    }
    if (at.action != Action::weight_gradients) made_.insert(message_of(at, own));
    return true;
  }

  std::vector<Rank> ranks_;
  bool v_shaped_;
  int64_t room_, chunks_;
  std::set<Message> there_;  // sent
  std::set<Message> made_;   // by the stage that made it
  int64_t most_received_ = 0;
};

}  // namespace nought::test
