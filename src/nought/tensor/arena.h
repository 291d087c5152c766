// Where the blocks of a training step go when the step before has shown which of them live together.
//
// A step asks for the same blocks in the same order every time. So their places in one large block can be chosen before
// they are asked for: no search, no free lists, and no gaps that fit nothing ("memory defragmentation" of arXiv
// 1910.02054, section 6.3).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "nought/tensor/packing.h"

namespace nought {

/// The blocks of one rank's steps: the second step is watched, and later ones get their blocks from the arena. What
/// another thread asks for, what is small, and what a step does not do as the watched one did, is refused and comes
/// from elsewhere. Not thread safe.
class StepArena {
 public:
  static constexpr int64_t kLeastBytes = 65536;

  /// What identifies a block of a step until it is given back.
  struct Ticket {
    int64_t index = -1;  // in the order of the step's requests; -1 = none of its business
    int64_t step = 0;
    bool placed = false;  // in the arena
  };
  struct Place {
    std::byte* data = nullptr;  // nullptr: get it elsewhere
    Ticket ticket;
  };
  /// A request of a multiple of 64 bytes.
  Place take(int64_t bytes);
  void give_back(const std::byte* data, const Ticket& ticket);

  void begin_step();
  /// The size of the arena that the steps to come want, if it is another one than they have.
  std::optional<Packing> end_step();
  /// From now on blocks lie in `data`, of packing.bytes bytes, as the last end_step() said.
  void move_to(std::byte* data, Packing packing);

  /// The sizes of the blocks that a step asks for and leaves behind: they have no place in the arena.
  std::vector<int64_t> outlasting() const;
  /// Bytes of the arena beyond the most that is alive in it at once.
  int64_t fragmentation() const { return packing_.bytes - packing_.alive; }
  /// True if a block is in use.
  bool in_use() const { return !used_.empty(); }

 private:
  static constexpr int64_t kForever = INT64_MAX;

  bool is_free(int64_t offset, int64_t bytes) const;

  std::thread::id thread_;
  int64_t step_ = 0, clock_ = 0;
  bool in_step_ = false, as_planned_ = true;
  std::vector<Lifetime> seen_;     // the requests of this step
  std::vector<Lifetime> planned_;  // those that packing_ is of; what outlives the step has no place
  Packing packing_;
  std::byte* data_ = nullptr;
  std::map<int64_t, int64_t> used_;  // offset -> end, of the blocks in use
  int plans_ = 0;
};

}  // namespace nought
