// StepArena: gives the memory blocks of a training step fixed places in one large block, the arena.
//
// Every step asks for the same blocks in the same order. So their places can be chosen before they are asked for. Then
// no request searches a free list, and no gaps are left that fit nothing ("memory defragmentation" of arXiv 1910.02054,
// section 6.3).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "nought/tensor/packing.h"

namespace nought {

/// The blocks of one rank's steps. The second step is watched; later steps get their blocks from the arena. Three kinds
/// of requests have no place in it: those of other threads, those below kLeastBytes, and those that differ from the
/// watched step's. Not thread safe.
class StepArena {
 public:
  static constexpr int64_t kLeastBytes = 65536;

  /// Identifies a block of a step until it is given back.
  struct Ticket {
    int64_t index = -1;  // in the order of the step's requests; -1 = the arena does not follow this block
    int64_t step = 0;
    bool placed = false;  // true: the block lies in the arena
  };
  struct Place {
    std::byte* data = nullptr;  // nullptr: the arena has no place, the caller allocates the block elsewhere
    Ticket ticket;
  };
  /// Asks for a block. `bytes` is a multiple of 64.
  Place take(int64_t bytes);
  void give_back(const std::byte* data, const Ticket& ticket);

  void begin_step();
  /// The packing of an arena for the steps to come, if the current one does not fit the step that ends.
  std::optional<Packing> end_step();
  /// Puts the arena at `data`, which has packing.bytes bytes. `packing` is what end_step() returned.
  void move_to(std::byte* data, Packing packing);

  /// The sizes of the blocks that a step asks for and that outlive it. They have no place in the arena.
  std::vector<int64_t> outlasting() const;
  /// How many bytes the arena is larger than the most that is in use in it at once.
  int64_t fragmentation() const { return packing_.bytes - packing_.alive; }
  /// True if a block of the arena is in use.
  bool in_use() const { return !used_.empty(); }

 private:
  static constexpr int64_t kForever = INT64_MAX;

  bool is_free(int64_t offset, int64_t bytes) const;

  std::thread::id thread_;
  int64_t step_ = 0, clock_ = 0;
  bool in_step_ = false, as_planned_ = true;
  std::vector<Lifetime> seen_;     // the requests of this step
  std::vector<Lifetime> planned_;  // the requests that packing_ was made for
  Packing packing_;
  std::byte* data_ = nullptr;
  std::map<int64_t, int64_t> used_;  // offset -> end of each block in use
  int plans_ = 0;
};

}  // namespace nought
