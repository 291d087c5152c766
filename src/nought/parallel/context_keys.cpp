#include "nought/parallel/context_keys.h"

#include <utility>

namespace nought {

namespace {

void copy_heads(const Context& context, const PackedKeys& keys, const KeyHeads& from, const KeyHeads& to,
                int64_t tokens, bool accumulate) {
  context.run(CopyHeads{.from = from.k,
                        .to = to.k,
                        .tokens = tokens,
                        .num_heads = keys.held.size(),
                        .head_dim = keys.whole.head_dim,
                        .accumulate = accumulate});
  context.run(CopyHeads{.from = from.v,
                        .to = to.v,
                        .tokens = tokens,
                        .num_heads = keys.held.size(),
                        .head_dim = keys.whole.value_dim(),
                        .accumulate = accumulate});
}

}  // namespace

void PackedKeys::pack(const Context& context, const Tensor& qkv, const Tensor& keys) const {
  copy_heads(context, *this, within(qkv), in(keys), qkv.rows(), false);
}

void PackedKeys::add_to(const Context& context, const Tensor& keys, const Tensor& qkv) const {
  copy_heads(context, *this, in(keys), within(qkv), qkv.rows(), true);
}

AttentionShape PackedKeys::shape(const AttentionOptions& options, std::vector<AttentionSpan> spans) const {
  return {.num_heads = query_heads().size(),
          .num_kv_heads = held.size(),
          .head_dim = whole.head_dim,
          .scale = options.scale,
          .causal = options.causal,
          .window = options.window,
          .softcap = options.softcap,
          .v_head_dim = whole.v_head_dim,
          .spans = std::move(spans)};
}

Tensor as_dtype(const Context& context, const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  Tensor y = context.empty(x.shape(), dtype);
  context.run(Cast{.x = x, .y = y});
  return y;
}

}  // namespace nought
