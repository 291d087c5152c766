// What a rank should send for attention over sequences that ranks share, in elements, to the last one.
#pragma once

#include "nought/parallel/context_heads.h"
#include "nought/parallel/context_spans.h"

namespace nought::test {

/// Elements that a rank sends for one call of attention, by collective. Those of keys and values have the dtype of the
/// activations, those of their gradients are fp32.
struct ContextTraffic {
  int64_t send = 0, all_gather = 0, reduce_scatter = 0, all_to_all_v = 0;
  friend bool operator==(const ContextTraffic&, const ContextTraffic&) = default;
};

/// The tokens whose keys, or their gradients, this rank sends on. Keys leave on step 0, gradients on the step after.
inline int64_t tokens_sent_on(const ContextSpans& spans, bool gradients) {
  const ContextTokens& tokens = spans.tokens();
  const int ranks = tokens.ranks.ranks;
  int64_t sent = 0;
  for (int step = gradients ? 1 : 0; step < ranks; ++step) {
    const int from = (tokens.ranks.rank - step + ranks) % ranks;
    const int hops = spans.hops(from);
    if (gradients ? hops >= step : hops > step) sent += tokens.tokens(from);
  }
  return sent;
}

/// What a pass sends of keys and values, and what a backward pass sends of their gradients; a backward pass sends both.
/// key_width: the elements of a token's keys and values, which are not repeated for the heads that read them.
///
/// Ring: on step i < c - 1 the rank passes on the keys of the rank i places before it, unless no query further on sees
/// them. Of causal rows that divide, n tokens per rank, it is all of them: (c-1) n key_width. The sums of gradients
/// take as many hops: the first visited rank begins them, and the last one sends them home.
/// Gathered: all ranks send as many rows as the one with most tokens, to the c-1 others; gradients likewise.
inline ContextTraffic keys_traffic(const ContextSpans& spans, int64_t key_width) {
  const ContextTokens& tokens = spans.tokens();
  if (!tokens.several()) return {};
  if (tokens.ranks.method == ContextMethod::gather)
    return {.all_gather = (tokens.ranks.ranks - 1) * tokens.most_tokens() * key_width};
  return {.send = tokens_sent_on(spans, false) * key_width};
}

inline ContextTraffic key_gradients_traffic(const ContextSpans& spans, int64_t key_width) {
  const ContextTokens& tokens = spans.tokens();
  if (!tokens.several()) return {};
  if (tokens.ranks.method == ContextMethod::gather)
    return {.reduce_scatter = (tokens.ranks.ranks - 1) * tokens.most_tokens() * key_width};
  return {.send = tokens_sent_on(spans, true) * key_width};
}

/// To each other rank some columns of this rank's tokens, and back some of that one's.
inline ContextTraffic there_and_back(const ContextTokens& tokens, int64_t there, int64_t back) {
  if (!tokens.several()) return {};
  const int64_t own = tokens.tokens(tokens.ranks.rank), others = tokens.rows * tokens.length - own;
  return {.all_to_all_v = (tokens.ranks.ranks - 1) * own * there + others * back};
}

/// What a forward pass sends that exchanges tokens for heads, in the dtype of the activations: of the n tokens of this
/// rank, w = heads_of_each().width() columns for each other rank, (c-1) n w; and of the other ranks' tokens, the v
/// columns that come of attention here, heads_of_each().out_width().
inline ContextTraffic heads_traffic(const ContextTokens& tokens, const PackedHeads& heads) {
  const PackedHeads each = heads_of_each(heads, tokens.ranks.ranks);
  return there_and_back(tokens, each.width(), each.out_width());
}

/// What a backward pass sends: of the n tokens v columns for each other rank, of the other ranks' tokens w columns.
inline ContextTraffic heads_gradients_traffic(const ContextTokens& tokens, const PackedHeads& heads) {
  const PackedHeads each = heads_of_each(heads, tokens.ranks.ranks);
  return there_and_back(tokens, each.out_width(), each.width());
}

}  // namespace nought::test
