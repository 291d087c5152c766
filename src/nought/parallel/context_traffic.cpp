#include "nought/parallel/context_traffic.h"

#include "nought/parallel/context_heads.h"

namespace nought {

namespace {

/// The tokens whose keys, or their gradients, this rank sends on. Keys leave on step 0, gradients on the step after.
int64_t tokens_sent_on(const ContextSpans& spans, bool gradients) {
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

}  // namespace

ContextTraffic keys_traffic(const ContextSpans& spans, int64_t key_width) {
  const ContextTokens& tokens = spans.tokens();
  if (!tokens.several()) return {};
  if (tokens.ranks.method == ContextMethod::gather)
    return {.all_gather = (tokens.ranks.ranks - 1) * tokens.most_tokens() * key_width};
  return {.send = tokens_sent_on(spans, false) * key_width};
}

ContextTraffic key_gradients_traffic(const ContextSpans& spans, int64_t key_width) {
  const ContextTokens& tokens = spans.tokens();
  if (!tokens.several()) return {};
  if (tokens.ranks.method == ContextMethod::gather)
    return {.reduce_scatter = (tokens.ranks.ranks - 1) * tokens.most_tokens() * key_width};
  return {.send = tokens_sent_on(spans, true) * key_width};
}

namespace {

/// To each other rank some columns of this rank's tokens, and back some of that one's.
ContextTraffic there_and_back(const ContextTokens& tokens, int64_t there, int64_t back) {
  if (!tokens.several()) return {};
  const int64_t own = tokens.tokens(tokens.ranks.rank), others = tokens.rows * tokens.length - own;
  return {.all_to_all_v = (tokens.ranks.ranks - 1) * own * there + others * back};
}

}  // namespace

ContextTraffic heads_traffic(const ContextTokens& tokens, const PackedHeads& heads) {
  const PackedHeads each = heads_of_each(heads, tokens.ranks.ranks);
  return there_and_back(tokens, each.width(), each.out_width());
}

ContextTraffic heads_gradients_traffic(const ContextTokens& tokens, const PackedHeads& heads) {
  const PackedHeads each = heads_of_each(heads, tokens.ranks.ranks);
  return there_and_back(tokens, each.out_width(), each.width());
}

}  // namespace nought
