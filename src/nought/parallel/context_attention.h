// context_attention: self-attention over sequences whose tokens lie on several ranks (context parallelism).
//
// Design goals: the result is that of attention() on one rank, up to the rounding of sums that are added in another
// order; what this rank has of it, and nothing else, is computed and kept here; the same bits in every run.
// Non-goals: which tokens a rank has (parallel/context_ranks), what surrounds attention.
#pragma once

#include "nought/autograd/attention.h"
#include "nought/parallel/context_ranks.h"

namespace nought {

/// qkv: [tokens of this rank, heads.width()], in the order of ContextTokens::indices(), rotated; options.spans: the
/// documents of all rows, whose queries and keys are the same tokens, numbered over [rows * length]; none: whole rows
/// -> [tokens of this rank, heads.out_width()]. The ranks issue it in the same order, in both passes. With one rank it
/// is attention().
Var context_attention(Tape& tape, const Var& qkv, const PackedHeads& heads, const AttentionOptions& options,
                      const ContextTokens& tokens);

}  // namespace nought
