// What a rank sends for attention over sequences that ranks share, in elements, to the last one.
#pragma once

#include "nought/parallel/context_spans.h"

namespace nought {

/// Elements that a rank sends for one call of attention, by collective. Those of keys and values have the dtype of the
/// activations, those of their gradients are fp32.
struct ContextTraffic {
  int64_t send = 0, all_gather = 0, reduce_scatter = 0, all_to_all_v = 0;
  friend bool operator==(const ContextTraffic&, const ContextTraffic&) = default;
};

/// What a pass sends of keys and values, and what a backward pass sends of their gradients; a backward pass sends both.
/// key_width: the elements of a token's keys and values, which are not repeated for the heads that read them.
///
/// Ring: on step i < c - 1 the rank passes on the keys of the rank i places before it, unless no query further on sees
/// them. Of causal rows that divide, n tokens per rank, it is all of them: (c-1) n key_width. The sums of gradients
/// take as many hops: the first visited rank begins them, and the last one sends them back.
/// Gathered: all ranks send as many rows as the one with most tokens, to the c-1 others; gradients likewise.
ContextTraffic keys_traffic(const ContextSpans& spans, int64_t key_width);
ContextTraffic key_gradients_traffic(const ContextSpans& spans, int64_t key_width);

/// What a forward pass sends that exchanges tokens for heads, in the dtype of the activations: of the n tokens of this
/// rank, w = heads_of_each().width() columns for each other rank, (c-1) n w; and of the other ranks' tokens, the v
/// columns that come of attention here, heads_of_each().out_width().
ContextTraffic heads_traffic(const ContextTokens& tokens, const PackedHeads& heads);
/// What a backward pass sends: of the n tokens v columns for each other rank, of the other ranks' tokens w columns.
ContextTraffic heads_gradients_traffic(const ContextTokens& tokens, const PackedHeads& heads);

}  // namespace nought
