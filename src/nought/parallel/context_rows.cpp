#include "nought/parallel/context_rows.h"

namespace nought {

Tensor gather_rows(const Context& context, const Tensor& own, const ContextTokens& tokens) {
  if (!tokens.several()) return own;
  // Ranks may differ by some tokens: each sends as many rows, those of no token last.
  const int64_t most = tokens.most_tokens(), width = own.dim(-1);
  std::vector<int32_t> places(static_cast<size_t>(tokens.rows * tokens.length));
  for (int rank = 0; rank < tokens.ranks.ranks; ++rank) {
    auto place = static_cast<int32_t>(rank * most);
    for (const int32_t index : tokens.indices(rank)) places[static_cast<size_t>(index)] = place++;
  }
  Tensor sent = own;
  if (own.rows() < most) {
    sent = context.zeros({most, width}, own.dtype(), Category::workspace);
    context.copy(own, sent.slice(0, own.rows()));
  }
  const Tensor parts = context.empty({tokens.ranks.ranks * most, width}, own.dtype(), Category::workspace);
  Communicator& ranks = *tokens.ranks.group;
  ranks.wait(ranks.all_gather(sent, parts), *context.stream);
  const auto count = static_cast<int64_t>(places.size());
  Tensor all = context.empty({count, width}, own.dtype());
  context.run(GatherRows{.x = parts, .index = context.upload<int32_t>({count}, places), .out = all});
  return all;
}

}  // namespace nought
