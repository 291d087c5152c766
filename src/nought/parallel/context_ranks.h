// ContextRanks: the ranks that hold the parts of the same sequences, and which tokens each of them has.
//
// A row of tokens is cut into 2 c neighbouring chunks for c ranks; rank r has chunk r and chunk 2 c - 1 - r (zig-zag).
// So each rank has as much to attend to under a causal mask. Chunks differ by a token where the row does not divide:
// no rank has a token that is not one of the batch.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "nought/comm/mesh.h"
#include "nought/parallel/context_method.h"

namespace nought {

/// Plain data, cheap to copy. The mesh that it was made of outlives it.
struct ContextRanks {
  int ranks = 1, rank = 0;
  ContextMethod method = ContextMethod::ring;
  int64_t gathered_heads = 0;     // key/value heads that are gathered at a time, which bounds memory; 0: all
  Communicator* group = nullptr;  // Group::context; null: one rank has whole sequences

  ContextRanks() = default;
  ContextRanks(const Mesh& mesh, ContextMethod how)
      : ranks(mesh.grid().size(Axis::context)),
        rank(mesh.coordinate(Axis::context)),
        method(how),
        group(ranks > 1 ? &mesh.group(Group::context) : nullptr) {}

  bool several() const { return ranks > 1; }
};

/// The tokens of so many rows of one length over the ranks.
struct ContextTokens {
  ContextRanks ranks = {};
  int64_t rows = 0, length = 0;

  bool several() const { return ranks.several(); }
  int chunks() const { return 2 * ranks.ranks; }
  /// The positions of a chunk in each row.
  Interval chunk(int index) const { return {index * length / chunks(), (index + 1) * length / chunks()}; }
  /// The two chunks that a rank has, rising: it has the first one's tokens of a row before the second one's.
  std::array<Interval, 2> held_by(int rank) const { return {chunk(rank), chunk(chunks() - 1 - rank)}; }
  /// The tokens that a rank has of each row, and of all.
  int64_t row_tokens(int rank) const {
    const auto [low, high] = held_by(rank);
    return low.size() + high.size();
  }
  int64_t tokens(int rank) const { return rows * row_tokens(rank); }
  /// The most that any rank has.
  int64_t most_tokens() const;
  /// The tokens that a rank has, in its order, as indices into [rows * length].
  std::vector<int32_t> indices(int rank) const;
  /// Calls body(by_rank, in_order) for stretches of tokens that lie one behind the other in both orders: rank by rank,
  /// and that of [rows * length]. padded: each rank has room for most_tokens(), else for its own.
  template <class Body>
  void for_each_stretch(bool padded, const Body& body) const {
    const int64_t room = padded ? most_tokens() : 0;
    int64_t place = 0;
    for (int rank = 0; rank < ranks.ranks; ++rank) {
      if (padded) place = rank * room;
      for (int64_t row = 0; row < rows; ++row)
        for (const Interval& chunk : held_by(rank)) {
          const int64_t first = row * length + chunk.begin;
          if (!chunk.empty()) body(Interval{place, place + chunk.size()}, Interval{first, first + chunk.size()});
          place += chunk.size();
        }
    }
  }
};

}  // namespace nought
