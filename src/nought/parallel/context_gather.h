// Attention over gathered keys and values (arXiv 2407.21783): every rank gathers those of all tokens, some heads at a
// time, and attends with its own queries.
//
// Design goals: after the pass a rank keeps its own keys alone, and gathers again for the gradients; those of the keys
// are added over the ranks in fp32 (f64 for f64), in the order of the ranks; the next heads come while attention runs.
#pragma once

#include "nought/parallel/context_spans.h"

namespace nought {

/// context_attention() with ContextMethod::gather.
Var gathered_attention(Tape& tape, const Var& qkv, const PackedHeads& heads, const AttentionOptions& options,
                       const ContextTokens& tokens);

}  // namespace nought
