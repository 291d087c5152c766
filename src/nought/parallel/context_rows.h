// What moves between the tokens of whole sequences and the tokens that this rank has of them. Values alone.
#pragma once

#include "nought/kernels/kernels.h"
#include "nought/parallel/context_ranks.h"

namespace nought {

/// This rank's elements of one number per token of the whole sequences, in its order.
template <class T>
std::vector<T> local_of(std::span<const T> all, const ContextTokens& tokens) {
  std::vector<T> own;
  own.reserve(static_cast<size_t>(tokens.tokens(tokens.ranks.rank)));
  for (const int32_t index : tokens.indices(tokens.ranks.rank)) own.push_back(all[static_cast<size_t>(index)]);
  return own;
}

/// The rows of all tokens in the order of the sequences, [rows * length, width], of this rank's, [tokens, width].
/// Collective.
Tensor gather_rows(const Context& context, const Tensor& own, const ContextTokens& tokens);

}  // namespace nought
