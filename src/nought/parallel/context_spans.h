// ContextSpans: which queries of a rank meet which keys of each rank, as the spans of calls of attention.
//
// Design goals: arithmetic on positions alone, so that it is tested without ranks, and every rank can tell what any
// other computes; each call has all queries of the rank in one order, so that its results merge with those of others.
// Non-goals: moving keys (parallel/context_ring and parallel/context_gather do).
#pragma once

#include <vector>

#include "nought/autograd/attention.h"
#include "nought/parallel/context_ranks.h"

namespace nought {

class ContextSpans {
 public:
  /// The documents, mask and window of `options`, as context_attention() has them. ShapeError unless the documents are
  /// all tokens of all rows, in order, and none crosses rows.
  ContextSpans(const ContextTokens& tokens, const AttentionOptions& options);

  const ContextTokens& tokens() const { return tokens_; }

  /// The queries of `rank` against one of the two chunks that rank `from` has of each row; half: 0 or 1, the one of
  /// ContextTokens::held_by(). Keys are numbered as `from` has them. A span whose queries see none of them has no keys.
  std::vector<AttentionSpan> on_chunks(int rank, int from, int half) const;
  /// The queries of `rank` against all tokens, in the order of [rows * length].
  std::vector<AttentionSpan> on_all(int rank) const;
  /// True if a query of `rank` sees a key of rank `from`.
  bool meet(int rank, int from) const;
  /// How many hops the keys of rank `from` go round the ring: to the last rank with a query that sees one of them.
  int hops(int from) const;

 private:
  /// Queries of one document that a rank has one behind the other, as indices into [rows * length].
  struct Piece {
    int64_t q_begin = 0;  // where the rank has the first
    Interval queries, document;
    int64_t row = 0;
  };
  template <class Body>
  void for_each_piece(int rank, const Body& body) const;
  /// `available`: keys that lie one behind the other; k_begin: where the first does.
  AttentionSpan span_of(const Piece& piece, Interval available, int64_t k_begin) const;
  AttentionSpan span_on_chunk(const Piece& piece, int from, int half) const;

  ContextTokens tokens_;
  bool causal_ = true;
  int64_t window_ = 0;
  std::vector<std::vector<Interval>> documents_;  // of each row, as indices into [rows * length]
};

/// True if a query of these spans sees a key.
bool any_keys(const std::vector<AttentionSpan>& spans);

}  // namespace nought
