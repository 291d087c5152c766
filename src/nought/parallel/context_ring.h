// Ring attention (arXiv 2310.01889) over zig-zag chunks: keys and values go round the ranks, one hop per step, while
// each rank attends to those that it has.
//
// Design goals: keys travel while attention runs; the results of the steps are merged, and gradients added, in fp32
// (f64 for f64), in an order that depends on places alone; a hop that nobody needs is left out by all ranks alike.
//
// The gradients of a rank's keys are formed by the ranks that its keys visit. The first visited rank begins a sum,
// which travels a step behind the keys and is sent back by the last one. There the rank's own part is the first
// summand.
#pragma once

#include "nought/parallel/context_spans.h"

namespace nought {

/// context_attention() with ContextMethod::ring.
Var ring_attention(Tape& tape, const Var& qkv, const PackedHeads& heads, const AttentionOptions& options,
                   const ContextTokens& tokens);

}  // namespace nought
