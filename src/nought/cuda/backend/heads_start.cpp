#include "nought/cuda/backend/attention_start.h"
#include "nought/cuda/backend/heads.h"

namespace nought::cuda {

HeadArray heads_of(const Heads& heads, int64_t head_dim) {
  Array array = array_of(heads.base);
  if (array) array.at = static_cast<std::byte*>(array.at) + heads.offset * size_of(array.dtype);
  return {array, heads.token_stride, heads.stride(head_dim)};
}

bool fits(const CopyHeads& op) { return op.from.base.dtype() == op.to.base.dtype(); }

void start(const CopyHeads& op, Place& at) {
  HeadArray from = heads_of(op.from, op.head_dim);
  if (op.broadcast) from.head_stride = 0;
  copy_heads(at.launch, from, heads_of(op.to, op.head_dim), {op.tokens, op.num_heads, op.head_dim}, op.accumulate);
}

void start(const SumHeads& op, Place& at) {
  sum_heads(at.launch, heads_of(op.from, op.head_dim), heads_of(op.to, op.head_dim),
            {op.tokens, op.num_heads, op.head_dim});
}

void start(const Rope& op, Place& at) {
  rope(at.launch,
       {.x = heads_of(op.x, op.head_dim),
        .cos = array_of(op.cos),
        .sin = array_of(op.sin),
        .positions = array_of(op.positions),
        .rotary_dim = op.rotary_dim,
        .interleaved = op.interleaved,
        .inverse = op.inverse,
        .positions_known = op.cos.rows()},
       {op.positions.numel(), op.num_heads, op.head_dim});
}

}  // namespace nought::cuda
