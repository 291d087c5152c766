// PieceCache: remembers the ids of short pieces of text. Text repeats its words, so most pieces need not be merged
// again.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace nought {

/// A table of 2^15 entries of 32 bytes, which fits a core's second-level cache. A new piece replaces the one in its
/// slot.
class PieceCache {
 public:
  static constexpr size_t kMaxPiece = 15, kMaxIds = 3;

  struct Entry {
    std::array<uint64_t, 2> key{};  // the piece's bytes, zeros, and its length in the last byte; all zeros: unused
    uint32_t count = 0;
    std::array<int32_t, kMaxIds> ids{};
  };

  PieceCache() : entries_(size_t{1} << kBits) {}

  /// The slot of a piece of 1 to kMaxPiece bytes. It holds this piece if its key is equal.
  Entry& slot(const std::array<uint64_t, 2>& key) {
    const uint64_t hash = (key[0] ^ (key[1] * 0x9E3779B97F4A7C15ull)) * 0xD6E8FEB86659FD93ull;
    return entries_[(hash ^ hash >> 29) >> (64 - kBits)];
  }
  static std::array<uint64_t, 2> key_of(std::string_view piece) {
    std::array<uint64_t, 2> key{};
    std::memcpy(key.data(), piece.data(), piece.size());
    key[1] |= static_cast<uint64_t>(piece.size()) << 56;
    return key;
  }

 private:
  static constexpr int kBits = 15;
  std::vector<Entry> entries_;
};

}  // namespace nought
