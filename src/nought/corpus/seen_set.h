// SeenSet: 64-bit hashes that were seen, and how often; an open table that is emptied and used again.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace nought {

class SeenSet {
 public:
  /// Empties the set, and makes room for this many hashes.
  void restart(size_t capacity) {
    size_t slots = 64;
    while (slots < capacity * 2) slots *= 2;
    mask_ = slots - 1;
    if (slots_.size() < slots || ++round_ == 0) {
      slots_.assign(std::max(slots, slots_.size()), {});
      round_ = 1;
    }
  }
  /// How often the hash was added, this time included. There must be room.
  uint32_t add(uint64_t hash) {
    Slot& slot = slot_of(hash);
    if (slot.round != round_) slot = {hash, round_, 0};
    return ++slot.count;
  }
  /// How often it was added.
  uint32_t count_of(uint64_t hash) {
    const Slot& slot = slot_of(hash);
    return slot.round == round_ ? slot.count : 0;
  }

 private:
  struct Slot {
    uint64_t hash = 0;
    uint32_t round = 0, count = 0;  // of another round than the set's: the slot is free
  };
  Slot& slot_of(uint64_t hash) {
    size_t at = hash & mask_;
    while (slots_[at].round == round_ && slots_[at].hash != hash) at = (at + 1) & mask_;
    return slots_[at];
  }
  std::vector<Slot> slots_;
  size_t mask_ = 0;
  uint32_t round_ = 0;
};

}  // namespace nought
