#include "nought/nn/context_batch.h"

#include <algorithm>

#include "nought/parallel/context_rows.h"

namespace nought {

Batch part_of(const Context& context, const Batch& batch, const ContextTokens& tokens) {
  const Shape shape{tokens.rows, tokens.row_tokens(tokens.ranks.rank)};
  const auto part = [&]<class T>(const Tensor& all, T) {
    if (!all.defined()) return Tensor();
    Tensor own = Tensor::empty(*context.memory, shape, all.dtype(), Category::workspace, context.memory->host_pool());
    if (context.memory->is_virtual()) return own;  // values are nobody's business
    const std::vector<T> values = local_of<T>(all.span<T>(), tokens);
    std::copy(values.begin(), values.end(), own.data<T>());
    return own;
  };
  return {part(batch.input_ids, int32_t{}),
          part(batch.targets, int32_t{}),
          {},
          part(batch.weights, float{}),
          batch.placeholder,
          batch.row_keys,
          {.all = batch.sequences.all,
           .of_target = part(batch.sequences.of_target, int32_t{}),
           .likelihood = part(batch.sequences.likelihood, float{}),
           .written = part(batch.sequences.written, float{}),
           .known = part(batch.sequences.known, float{}),
           .share = batch.sequences.share / tokens.ranks.ranks}};
}

}  // namespace nought
