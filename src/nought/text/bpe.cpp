#include <algorithm>
#include <queue>

#include "nought/base/error.h"
#include "nought/text/pair_table.h"
#include "nought/text/piece_cache.h"
#include "nought/text/piece_model.h"
#include "nought/text/pool.h"
#include "nought/text/unicode.h"

namespace nought {

namespace {

constexpr size_t kShortPiece = 48;  // up to here a scan for the lowest rank beats a heap
constexpr int32_t kNone = -1;

struct Symbol {
  int32_t id;
  PairTable::Entry next;  // how it merges with its right neighbour
};

struct Scratch {
  PieceCache cache;
  std::vector<int32_t> start;
  std::vector<Symbol> symbols;
};

// Merges the pair of lowest rank, the leftmost of equals, until none is left. Quadratic.
void merge_short(const PairTable& pairs, std::vector<Symbol>& symbols) {
  for (size_t i = 0; i + 1 < symbols.size(); ++i) symbols[i].next = pairs(symbols[i].id, symbols[i + 1].id);
  symbols.back().next = {};
  while (true) {
    size_t best = 0;
    for (size_t i = 1; i < symbols.size(); ++i) {
      if (symbols[i].next.rank < symbols[best].next.rank) best = i;
    }
    if (symbols[best].next.rank == PairTable::kNoRank) return;
    symbols[best].id = symbols[best].next.merged;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    symbols[best].next = best + 1 < symbols.size() ? pairs(symbols[best].id, symbols[best + 1].id) : PairTable::Entry{};
    if (best > 0) symbols[best - 1].next = pairs(symbols[best - 1].id, symbols[best].id);
  }
}

// Merges in n log n: a heap of candidate pairs over a linked list; outdated candidates are passed over.
void merge_long(const PairTable& pairs, std::vector<int32_t>& ids) {
  struct Candidate {
    uint32_t rank;
    int32_t position, left, right, merged;
    bool operator<(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  const auto size = static_cast<int32_t>(ids.size());
  std::vector<int32_t> next(ids.size()), previous(ids.size());
  const auto at = [](auto& list, int32_t i) -> auto& { return list[static_cast<size_t>(i)]; };
  std::priority_queue<Candidate> heap;
  const auto offer = [&](int32_t left, int32_t right) {
    if (left == kNone || right == kNone) return;
    const PairTable::Entry& pair = pairs(at(ids, left), at(ids, right));
    if (pair.rank != PairTable::kNoRank) heap.push({pair.rank, left, at(ids, left), at(ids, right), pair.merged});
  };
  for (int32_t i = 0; i < size; ++i) at(previous, i) = i - 1, at(next, i) = i + 1 < size ? i + 1 : kNone;
  for (int32_t i = 0; i + 1 < size; ++i) offer(i, i + 1);
  while (!heap.empty()) {
    const Candidate best = heap.top();
    heap.pop();
    const int32_t left = best.position, right = at(next, left);
    if (at(ids, left) != best.left || right == kNone || at(ids, right) != best.right) continue;
    at(ids, left) = best.merged;
    at(ids, right) = kNone;
    at(next, left) = at(next, right);
    if (at(next, left) != kNone) at(previous, at(next, left)) = left;
    offer(at(previous, left), left);
    offer(left, at(next, left));
  }
  std::erase(ids, kNone);
}

class Bpe final : public PieceModel {
 public:
  Bpe(const Vocabulary& vocabulary, const std::vector<Merge>& merges, const BpeOptions& options)
      : vocabulary_(vocabulary),
        options_(options),
        fallback_(vocabulary, options.byte_level, options.byte_fallback, options.unknown),
        pairs_(merges.size()) {
    for (const Merge& merge : merges) pairs_.insert(merge.left, merge.right, merge.rank, merge.merged);
  }

  void encode(std::span<const std::string_view> pieces, std::vector<int32_t>& ids) const override {
    const auto scratch = scratch_.borrow();
    for (const std::string_view piece : pieces) encode_piece(piece, *scratch, ids);
  }

  void encode_bytes(std::string_view bytes, std::vector<int32_t>& ids) const override {
    fallback_.encode(bytes, options_.fuse_unknown, ids);
  }

 private:
  void encode_piece(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const {
    if (piece.size() - 1 >= PieceCache::kMaxPiece) return encode_uncached(piece, scratch, ids);
    const std::array<uint64_t, 2> key = PieceCache::key_of(piece);
    PieceCache::Entry& entry = scratch.cache.slot(key);
    if (entry.key == key) {
      ids.insert(ids.end(), entry.ids.begin(), entry.ids.begin() + entry.count);
      return;
    }
    const size_t before = ids.size();
    encode_uncached(piece, scratch, ids);
    if (const size_t count = ids.size() - before; count <= PieceCache::kMaxIds) {
      entry = {key, static_cast<uint32_t>(count), {}};
      std::copy(ids.end() - static_cast<std::ptrdiff_t>(count), ids.end(), entry.ids.begin());
    }
  }

  void encode_uncached(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const {
    if (options_.ignore_merges) {
      if (const auto whole = vocabulary_.find(piece)) return ids.push_back(*whole);
    }
    std::vector<int32_t>& start = scratch.start;
    start.clear();
    first_symbols(piece, start);
    if (start.empty()) return;
    if (start.size() > kShortPiece) {
      merge_long(pairs_, start);
      ids.insert(ids.end(), start.begin(), start.end());
      return;
    }
    scratch.symbols.clear();
    for (const int32_t id : start) scratch.symbols.push_back({id, {}});
    merge_short(pairs_, scratch.symbols);
    for (const Symbol& symbol : scratch.symbols) ids.push_back(symbol.id);
  }

  void first_symbols(std::string_view piece, std::vector<int32_t>& symbols) const {
    if (options_.byte_level) return fallback_.encode(piece, false, symbols);
    bool after_unknown = false;
    for (size_t i = 0; i < piece.size();) {
      const std::string_view character = piece.substr(i, utf8_length(piece[i]));
      i += character.size();
      if (const auto id = vocabulary_.find(character)) {
        symbols.push_back(*id);
        after_unknown = false;
      } else {
        const size_t before = symbols.size();
        fallback_.encode(character, true, symbols);
        const bool unknown = symbols.size() == before + 1 && symbols.back() == options_.unknown;
        if (unknown && after_unknown && options_.fuse_unknown) symbols.pop_back();
        after_unknown = unknown;
      }
    }
  }

  const Vocabulary& vocabulary_;
  BpeOptions options_;
  Fallback fallback_;
  PairTable pairs_;
  mutable ScratchPool<Scratch> scratch_;
};

}  // namespace

Fallback::Fallback(const Vocabulary& vocabulary, bool byte_level, bool byte_fallback, std::optional<int32_t> unknown)
    : unknown_(unknown) {
  for (size_t b = 0; b < byte_ids_.size(); ++b) {
    std::optional<int32_t> id;
    if (byte_level) {
      id = vocabulary.find(std::string(1, static_cast<char>(b)));
    } else if (byte_fallback) {
      id = vocabulary.find(byte_token(static_cast<uint8_t>(b)));
    }
    byte_ids_[b] = id.value_or(kNone);
  }
}

void Fallback::encode(std::string_view bytes, bool fuse_unknown, std::vector<int32_t>& ids) const {
  const size_t before = ids.size();
  for (const char byte : bytes) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(byte)];
    if (id != kNone) {
      ids.push_back(id);
      continue;
    }
    require<ConfigError>(unknown_.has_value(),
                         "the tokenizer has no token for the byte 0x{:02X}, and none for unknown text",
                         static_cast<uint8_t>(byte));
    ids.resize(before);
    ids.insert(ids.end(), fuse_unknown ? 1 : bytes.size(), *unknown_);
    return;
  }
}

std::unique_ptr<PieceModel> make_bpe(const Vocabulary& vocabulary, const std::vector<Merge>& merges,
                                     const BpeOptions& options) {
  return std::make_unique<Bpe>(vocabulary, merges, options);
}

std::vector<Merge> merges_by_rank(const Vocabulary& vocabulary) {
  std::vector<Merge> merges;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const std::string* token = vocabulary.token(id);
    if (!token) continue;
    for (size_t cut = 1; cut < token->size(); ++cut) {
      const auto left = vocabulary.find(std::string_view(*token).substr(0, cut));
      const auto right = left ? vocabulary.find(std::string_view(*token).substr(cut)) : std::nullopt;
      if (right) merges.push_back({*left, *right, id, static_cast<uint32_t>(id)});
    }
  }
  return merges;
}

}  // namespace nought
