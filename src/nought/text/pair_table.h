// PairTable: maps two token ids (left, right) to the rank and the id of their merge. It uses open addressing, so that a
// look-up usually touches one cache line.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace nought {

class PairTable {
 public:
  static constexpr uint32_t kNoRank = UINT32_MAX;
  struct Entry {
    uint64_t pair = kEmpty;
    uint32_t rank = kNoRank;
    int32_t merged = -1;
  };

  explicit PairTable(size_t pairs) {
    const size_t slots = std::bit_ceil(2 * pairs + 2);
    entries_.resize(slots);
    shift_ = 64 - std::countr_zero(slots);
  }
  /// Adds a pair. If it is there already, it gets the new rank and id.
  void insert(int32_t left, int32_t right, uint32_t rank, int32_t merged) {
    const uint64_t pair = key(left, right);
    entries_[find(pair)] = {pair, rank, merged};
  }
  /// The entry of a pair. Its rank is kNoRank if the pair does not merge.
  const Entry& operator()(int32_t left, int32_t right) const { return entries_[find(key(left, right))]; }

 private:
  static constexpr uint64_t kEmpty = UINT64_MAX;
  static uint64_t key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t find(uint64_t pair) const {
    size_t slot = (pair * 0x9E3779B97F4A7C15ull ^ pair >> 7) * 0xD6E8FEB86659FD93ull >> shift_;
    while (entries_[slot].pair != pair && entries_[slot].pair != kEmpty) slot = (slot + 1) & (entries_.size() - 1);
    return slot;
  }

  std::vector<Entry> entries_;
  int shift_ = 0;
};

}  // namespace nought
