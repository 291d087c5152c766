// The part of a batch that this rank has where ranks hold parts of sequences.
#pragma once

#include "nought/nn/batch.h"
#include "nought/parallel/context_ranks.h"

namespace nought {

/// The ids, targets and weights of this rank's tokens: [rows, tokens of a row]. Host code reads them. No documents:
/// they are those of whole sequences.
Batch part_of(const Context& context, const Batch& batch, const ContextTokens& tokens);

}  // namespace nought
