// The vocabulary cut over ranks (arXiv 1909.08053, section 3): lookups in a table whose rows the ranks share out, and
// the cross-entropy of logits whose columns they share out. A vocabulary need not divide: the last ranks hold fewer
// tokens, and nothing is padded.
#pragma once

#include <functional>
#include <span>

#include "nought/autograd/functions.h"
#include "nought/parallel/token_slices.h"

namespace nought {

/// Which tokens look up what this rank holds of a table.
struct HeldIds {
  Tensor rows;    // [tokens] i32: the row in this rank's part; 0 where another rank has it
  Tensor tokens;  // [tokens] i32: the token itself; -1 where another rank has its row
};
/// row_of: the row that this rank has of an id; negative: another one has it.
HeldIds held_ids(const Context& context, std::span<const int32_t> ids,
                 const std::function<int32_t(int32_t id)>& row_of);
/// ids: one for each token. Where memory is only counted there is nothing to read, and they are not read.
HeldIds held_ids(const Context& context, std::span<const int32_t> ids, Interval held);

/// y[t] = table[ids[t]] for the tokens that this rank has a row of, and 0 for the others.
Var held_embedding(Tape& tape, const HeldIds& ids, const WeightView& table);
/// y[t] = table[ids[t]], where `table` is this rank's part. The same on every rank, or this rank's slice of it.
Var vocabulary_embedding(Tape& tape, const HeldIds& ids, const WeightView& table, const TensorRanks& ranks,
                         const TokenSlices& slices = {});

/// Cross-entropy where the logits are this rank's columns [held.begin, held.end) of a vocabulary. targets: one for
/// each token, of the whole vocabulary; weights: as for cross_entropy_rows(). The rank that holds a token's target
/// writes its loss, and the others write 0: the loss is the sum over the ranks. The logits' gradients need no
/// communication.
RowLoss vocabulary_cross_entropy_rows(const Context& context, std::span<const int32_t> targets, const Tensor& weights,
                                      Interval held, const TensorRanks& ranks);

}  // namespace nought
