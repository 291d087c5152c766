#include "nought/parallel/context_rows.h"

namespace nought {

Tensor gather_rows(const Context& context, const Tensor& own, const ContextTokens& tokens) {
  if (!tokens.several()) return own;
  // Ranks may differ by some tokens: each sends as many rows, those of no token last.
  const int64_t most = tokens.most_tokens(), width = own.dim(-1);
  Tensor sent = own;
  if (own.rows() < most) {
    sent = context.zeros({most, width}, own.dtype(), Category::workspace);
    context.copy(own, sent.slice(0, own.rows()));
  }
  const Tensor parts = context.empty({tokens.ranks.ranks * most, width}, own.dtype(), Category::workspace);
  Communicator& ranks = *tokens.ranks.group;
  ranks.wait(ranks.all_gather(sent, parts), *context.stream);
  Tensor all = context.empty({tokens.rows * tokens.length, width}, own.dtype());
  tokens.for_each_stretch(/*padded=*/true, [&](Interval from, Interval to) {
    context.copy(parts.slice(from.begin, from.end), all.slice(to.begin, to.end));
  });
  return all;
}

}  // namespace nought
