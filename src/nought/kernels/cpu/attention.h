// How attention is cut into tasks for threads, and into panels and blocks within a task.
//
// The query heads that share a key/value head are rows of one matrix: row r is query r / group of head r % group of the
// group. So rows near each other see nearly the same keys, and a key block is converted once for all of them. Blocks
// and panels start at multiples of their sizes, so that no result depends on the number of threads.
#pragma once

#include <vector>

#include "nought/kernels/isa.h"
#include "nought/kernels/ops/attention.h"

namespace nought::cpu {

/// Rows or keys of one tile of scores.
inline constexpr int64_t kAttentionBlock = 64;
/// Rows that share a converted key block. Their queries and results stay in the second cache.
inline constexpr int64_t kAttentionPanel = 256;
/// Keys that are multiplied as one: pairs by dot products of bf16, 32 by a tile of AMX.
inline constexpr int64_t kKeyGrain = 32;
/// Whether attention multiplies by bf16 dot products: then probabilities are rounded to bf16 before they meet the
/// values, and so are gradients of scores.
inline bool takes_dots(const AttentionShape& shape, DType dtype) {
  return dtype == DType::bf16 && has_bf16_units() && shape.head_dim % 2 == 0 && shape.value_dim() % 2 == 0;
}

/// The forward pass: keys and values of another dtype, as a cache may have them, are multiplied as fp32.
inline bool takes_dots(const Attention& op) {
  return op.k.base.dtype() == op.q.base.dtype() && takes_dots(op.shape, op.q.base.dtype());
}

/// The rows of one key/value head of one sequence.
struct AttentionRows {
  const AttentionShape& shape;
  AttentionSpan span;
  int64_t kv_head = 0;
  int64_t group = shape.num_heads / shape.num_kv_heads;

  int64_t count() const { return group * span.q_length; }
  int64_t query(int64_t row) const { return group == 1 ? row : row / group; }
  int64_t head(int64_t row) const { return kv_head * group + row - query(row) * group; }
  /// The query's token among those of all sequences.
  int64_t token(int64_t row) const { return span.q_begin + query(row); }
  int64_t key_token(int64_t key) const { return span.k_begin + key; }
  /// Where the row's log of the sum of exponentials lies.
  int64_t lse(int64_t row) const { return span.q_begin * shape.num_heads + head(row) * span.q_length + query(row); }

  Interval panel(int64_t index) const {
    return intersect({index * kAttentionPanel, (index + 1) * kAttentionPanel}, {0, count()});
  }
  int64_t num_panels() const { return ceil_div(count(), kAttentionPanel); }
  /// The keys that at least one of the rows sees: both ends grow with the position of a query.
  Interval keys(Interval rows) const {
    return {visible_keys(shape, span, query(rows.begin)).begin, visible_keys(shape, span, query(rows.end - 1)).end};
  }
  /// The keys of a block that at least one of the rows sees, from a multiple of kKeyGrain on: a sum over keys has the
  /// same bits whichever rows are taken together.
  Interval seen(Interval rows, Interval block) const {
    const Interval both = intersect(keys(rows), block);
    return both.empty() ? both : Interval{both.begin / kKeyGrain * kKeyGrain, both.end};
  }
  /// Whether each of the rows sees all of the keys.
  bool all_see(Interval rows, Interval keys) const {
    return visible_keys(shape, span, query(rows.end - 1)).begin <= keys.begin &&
           visible_keys(shape, span, query(rows.begin)).end >= keys.end;
  }
};

/// Sequences whose keys overlap. One task adds up the gradients of a key, over the sequences in their order.
struct KeyGroup {
  Interval keys;  // the tokens of all
  std::vector<int64_t> sequences = {};
};

/// One element of a float tensor. It is slow: use it for a handful of values, such as one per head.
inline float element(const Tensor& x, int64_t i) {
  float value = 0;
  visit_float(x.dtype(), [&](auto tag) { value = static_cast<float>(x.data<typename decltype(tag)::type>()[i]); });
  return value;
}

/// Calls body(block) with [begin, end) of every aligned block that meets the range, cut to `limit`.
template <class Body>
void for_each_block(Interval range, int64_t limit, const Body& body) {
  if (range.empty()) return;
  for (int64_t i = range.begin / kAttentionBlock * kAttentionBlock; i < range.end; i += kAttentionBlock) {
    body(Interval{i, std::min(i + kAttentionBlock, limit)});
  }
}

}  // namespace nought::cpu
