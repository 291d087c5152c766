#include "nought/parallel/context_attention.h"

#include "nought/base/error.h"
#include "nought/parallel/context_gather.h"
#include "nought/parallel/context_heads.h"
#include "nought/parallel/context_ring.h"

namespace nought {

Var context_attention(Tape& tape, const Var& qkv, const PackedHeads& heads, const AttentionOptions& options,
                      const ContextTokens& tokens) {
  if (!tokens.several()) {
    AttentionOptions whole = options;
    whole.batch = tokens.rows, whole.length = tokens.length;
    return attention(tape, qkv, heads, whole);
  }
  require<ShapeError>(qkv.value.rows() == tokens.tokens(tokens.ranks.rank) && qkv.value.dim(-1) == heads.width(),
                      "attention over context ranks got {}, expected the {} tokens of rank {} with {} columns",
                      qkv.value, tokens.tokens(tokens.ranks.rank), tokens.ranks.rank, heads.width());
  switch (tokens.ranks.method) {
    case ContextMethod::ring:
      return ring_attention(tape, qkv, heads, options, tokens);
    case ContextMethod::gather:
      return gathered_attention(tape, qkv, heads, options, tokens);
    case ContextMethod::heads:
      return exchange_heads_attention(tape, qkv, heads, options, tokens);
  }
  fail<ConfigError>("attention over context ranks knows no such method");
}

}  // namespace nought
