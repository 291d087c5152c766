// The conjugate operators of tensor parallelism (arXiv 1909.08053, section 3): what one does to values, the other does
// to gradients. All ranks of the group call each in the same order; with one rank each gives back its input.
#pragma once

#include "nought/autograd/attention.h"
#include "nought/autograd/tape.h"
#include "nought/parallel/tensor_ranks.h"

namespace nought {

/// Into a region in which each rank computes a part: the identity. Its gradient is the sum of the ranks' gradients (f).
Var copy_to_ranks(Tape& tape, const Var& x, const TensorRanks& ranks);

/// Out of such a region: the sum over the ranks (g). Its gradient is the identity, because what follows is the same on
/// every rank. In place. bias: what the product of another rank has added to its x; its gradient is formed here.
Var sum_over_ranks(Tape& tape, const Var& x, const TensorRanks& ranks, const ParameterView& bias = {});

/// Key and value heads that several ranks share. x: [tokens, q | k | v], of which k and v are this rank's even part of
/// all heads' columns, narrower than a head. Result: `heads`, whose keys and values are the one head that this rank's
/// queries read. Its gradient is the sum over the ranks that read the head.
Var gather_shared_heads(Tape& tape, const Var& x, const PackedHeads& heads, const TensorRanks& ranks);

/// The columns of all ranks, [rows, extent], of this rank's part, [rows, part(extent)]. Values alone.
Tensor gather_columns(const Context& context, const Tensor& part, int64_t extent, const TensorRanks& ranks);

}  // namespace nought
