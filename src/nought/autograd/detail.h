// What the differentiable functions share.
#pragma once

#include <algorithm>

#include "nought/autograd/tape.h"
#include "nought/autograd/weight_view.h"

namespace nought::detail {

/// The tensor itself if nobody else holds it, otherwise a copy that may be overwritten.
inline Tensor writable(const Context& context, Tensor tensor) {
  if (tensor.unique()) return tensor;
  Tensor own = context.empty(tensor.shape(), tensor.dtype());
  context.copy(tensor, own);
  return own;
}

/// [rows of x, features].
inline Shape with_features(const Tensor& x, int64_t features) { return {x.rows(), features}; }

/// A sink in the shape and dtype of x that nobody reads: the kernels of norms form all gradients, wanted or not.
inline GradSink scratch_like(const Gradients& gradients, const Tensor& x, bool accumulate = false) {
  const Context& context = gradients.context();
  const Tensor into = context.empty(x.shape(), x.dtype(), Category::workspace);
  if (accumulate) context.zero(into);
  return {into, accumulate};
}
/// The sink, or one for what nobody wants.
inline GradSink or_scratch(const Gradients& gradients, const GradSink& sink, const Tensor& x) {
  return sink ? sink : scratch_like(gradients, x);
}

/// Adds x to the sink, or writes it there, in the sink's dtype.
inline void put(const Context& context, const Tensor& x, const GradSink& sink) {
  sink.accumulate ? context.run(AddTo{.x = x, .into = sink.into}) : context.run(Cast{.x = x, .y = sink.into});
}

/// Bytes of logits that are made at once: enough rows for products at full speed. On a device that is not the host, the
/// weight's gradient goes through its memory for each chunk, which costs as much as 500 rows of products.
inline int64_t chunk_bytes(const Context& context) {
  return context.memory->device().is_host() ? int64_t{64} << 20 : int64_t{1} << 30;
}

/// How many tokens' logits are made at once, in all chunks but the last: nearly equal numbers, in so many bytes at
/// most. Whole blocks of a product (kernels/cpu/gemm_bf16) waste nothing.
inline int64_t rows_of_chunks(int64_t tokens, int64_t bytes_per_row, int64_t most_bytes) {
  constexpr int64_t kBlockOfRows = 256;
  const int64_t fit = std::max<int64_t>(most_bytes / bytes_per_row, 1);
  const int64_t most = fit > kBlockOfRows ? fit / kBlockOfRows * kBlockOfRows : fit;
  return tokens > 0 ? ceil_div(tokens, ceil_div(tokens, most)) : 1;
}

}  // namespace nought::detail
