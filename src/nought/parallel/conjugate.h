// The conjugate operators of tensor parallelism (arXiv 1909.08053, section 3) and of sequence parallelism (arXiv
// 2205.05198): what one does to values, the other does to gradients. All ranks of the group call each in the same
// order; with one rank each gives back its input.
#pragma once

#include "nought/autograd/attention.h"
#include "nought/autograd/tape.h"
#include "nought/parallel/token_slices.h"

namespace nought {

/// Into a region in which each rank computes a part: the identity. Its gradient is the sum of the ranks' gradients (f).
Var copy_to_ranks(Tape& tape, const Var& x, const TensorRanks& ranks);

/// Out of such a region: the sum over the ranks (g). Its gradient is the identity, because what follows is the same on
/// every rank. In place. bias: what the product of another rank has added to its x; its gradient is formed here.
Var sum_over_ranks(Tape& tape, const Var& x, const TensorRanks& ranks, const ParameterView& bias = {});

/// Into such a region from slices: the tokens of all slices, [tokens, ...], of this rank's slice, [rows of a slice,
/// ...]. Its gradient is this rank's slice of the sum of the ranks' gradients. A node that saves the result keeps the
/// slice, and gathers again.
Var gather_tokens(Tape& tape, const Var& x, const TokenSlices& slices);

/// Out of such a region to slices: this rank's slice of the sum over the ranks. Its gradient is gathered from the
/// slices, and so is the same on every rank. bias: as for sum_over_ranks().
Var scatter_sum(Tape& tape, const Var& x, const TokenSlices& slices, const ParameterView& bias = {});

/// Into work that is the same on every rank, from slices: the tokens of all slices. Its gradient, which is the same on
/// every rank too, is not added up: each takes its slice.
Var gather_for_all(Tape& tape, const Var& x, const TokenSlices& slices);

/// copy_to_ranks(), or gather_tokens() if there are slices.
Var enter_ranks(Tape& tape, const Var& x, const TensorRanks& ranks, const TokenSlices& slices);
/// sum_over_ranks(), or scatter_sum() if there are slices.
Var leave_ranks(Tape& tape, const Var& x, const TensorRanks& ranks, const TokenSlices& slices,
                const ParameterView& bias = {});

/// Key and value heads that several ranks share. x: [tokens, q | k | v], of which k and v are this rank's even part of
/// all heads' columns, narrower than a head. Result: `heads`, whose keys and values are the one head that this rank's
/// queries read. Its gradient is the sum over the ranks that read the head.
Var gather_shared_heads(Tape& tape, const Var& x, const PackedHeads& heads, const TensorRanks& ranks);

/// The columns of all ranks, [rows, extent], of this rank's part, [rows, part(extent)]. Values alone.
Tensor gather_columns(const Context& context, const Tensor& part, int64_t extent, const TensorRanks& ranks);

}  // namespace nought
