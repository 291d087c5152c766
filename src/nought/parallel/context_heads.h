// Attention over ranks that exchange tokens for heads (DeepSpeed-Ulysses, arXiv 2309.14509): each attends with some
// heads over all tokens, so what is sent shrinks with the number of ranks.
//
// Design goals: attention itself is that of one rank; the two exchanges are conjugate operators, each of which is the
// other's gradient. Non-goals: heads that do not divide evenly (the ring takes any).
#pragma once

#include "nought/autograd/attention.h"
#include "nought/parallel/context_ranks.h"

namespace nought {

/// True if each of the ranks can have as many query heads, and the key/value heads that these read, whole.
constexpr bool share_heads_evenly(int64_t num_heads, int64_t num_kv_heads, int64_t ranks) {
  return num_heads % ranks == 0 && (num_kv_heads % ranks == 0 || ranks % num_kv_heads == 0);
}

/// The heads that each of so many ranks attends with: num_heads / ranks query heads, and the key/value heads that they
/// read. If there are fewer of these than ranks, ranks / num_kv_heads ranks in turn have the same one. ShapeError
/// unless the query heads divide, and the key/value heads either divide or are divided.
PackedHeads heads_of_each(const PackedHeads& heads, int ranks);

/// This rank's heads of all tokens, [rows * length, heads_of_each().width()], of all heads of this rank's tokens, [own
/// tokens, heads.width()]. Its gradient goes back the same way; those of a key/value head that several ranks read are
/// added in the order of the ranks. Collective in both passes.
Var tokens_to_heads(Tape& tape, const Var& qkv, const PackedHeads& heads, const ContextTokens& tokens);

/// The columns of all ranks in turn for this rank's tokens, [own tokens, ranks * width], of this rank's columns for all
/// tokens, [rows * length, width]. Its gradient goes back the same way. Collective in both passes.
Var heads_to_tokens(Tape& tape, const Var& x, const ContextTokens& tokens);

/// Attention between the two. As context_attention(); several ranks.
Var exchange_heads_attention(Tape& tape, const Var& qkv, const PackedHeads& heads, const AttentionOptions& options,
                             const ContextTokens& tokens);

}  // namespace nought
