// Checks the arguments of the matrix products and of attention, once for every backend.
#pragma once

#include <algorithm>

#include "nought/base/math.h"
#include "nought/kernels/ops.h"

namespace nought {

/// c: [m, n] = op(a): [m, k] times op(b): [k, n].
struct MatMulSizes {
  int64_t m = 0, n = 0, k = 0;
  friend bool operator==(const MatMulSizes&, const MatMulSizes&) = default;
};

/// The sizes of a product; ShapeError if its tensors do not fit together.
MatMulSizes check(const MatMul& op);

/// ShapeError unless all tensors of the operation fit its AttentionShape.
void check(const Attention& op);
void check(const AttentionBackward& op);

/// The keys that query i of a sequence sees; may be empty.
inline Interval visible_keys(const AttentionShape& s, const AttentionSpan& span, int64_t i) {
  const int64_t position = span.k_length - span.q_length + i;
  const int64_t begin = s.window > 0 ? position - s.window + 1 : 0;
  const int64_t end = s.causal ? position + 1 : span.k_length;
  return {std::clamp<int64_t>(begin, 0, span.k_length), std::clamp<int64_t>(end, 0, span.k_length)};
}

}  // namespace nought
