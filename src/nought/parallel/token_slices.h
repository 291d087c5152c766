// TokenSlices: the tokens of a micro-batch that each rank has between the products that ranks share (sequence
// parallelism, arXiv 2205.05198).
#pragma once

#include "nought/parallel/tensor_ranks.h"

namespace nought {

/// Slices have the same number of rows. Where the tokens do not divide, the last ones end with rows of no token, which
/// get no gradient and which nobody reads: all slices together, cut to the number of tokens, are the tokens in order.
struct TokenSlices {
  TensorRanks ranks = {};  // one: it has all tokens
  int64_t tokens = 0;      // those of all slices

  bool several() const { return ranks.several(); }
  /// Rows of a slice.
  int64_t rows() const { return ceil_div(tokens, ranks.size()); }
  /// Rows of all slices together.
  int64_t all_rows() const { return rows() * ranks.size(); }
  /// The rows of this rank's slice.
  Interval local_rows() const { return {ranks.rank() * rows(), (ranks.rank() + 1) * rows()}; }
};

}  // namespace nought
