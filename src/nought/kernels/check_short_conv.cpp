#include <algorithm>
#include <string_view>

#include "nought/kernels/check.h"

namespace nought {
namespace {

void expect_elements(std::string_view op, std::string_view name, const Tensor& x, int64_t numel, DType dtype) {
  require<ShapeError>(x.numel() == numel && x.dtype() == dtype, "{}: {} is {}, expected {} elements of {}", op, name, x,
                      numel, name_of(dtype));
}

void expect_gradient(std::string_view op, std::string_view name, const Tensor& d, const Tensor& of) {
  require<ShapeError>(d.numel() == of.numel() && (d.dtype() == of.dtype() || d.dtype() == DType::f32),
                      "{}: {} is {}, expected the elements of {} in its dtype or f32", op, name, d, of);
}

/// What both directions have alike.
template <class Op>
void check_both(std::string_view name, const Op& op, const Tensor& of_tokens) {
  require<ShapeError>(is_float(op.x.dtype()) && op.x.rank() >= 1 && op.weight.rank() >= 2,
                      "{}: x is {} and weight {}, expected rows of floats and [channels, taps]", name, op.x, op.weight);
  const int64_t channels = op.weight.dim(0), taps = op.weight.dim(-1);
  require<ShapeError>(op.x.dim(-1) == (op.gated ? 3 : 1) * channels && channels > 0,
                      "{}: x is {}, expected rows of {} for {} channels", name, op.x, (op.gated ? 3 : 1) * channels,
                      channels);
  require<ShapeError>(1 <= taps && taps <= kMostTaps, "{}: {} taps, expected 1 to {}", name, taps, kMostTaps);
  expect_elements(name, "weight", op.weight, channels * taps, op.x.dtype());
  if (op.bias) expect_elements(name, "bias", op.bias, channels, op.x.dtype());
  expect_elements(name, "what each token has", of_tokens, op.x.rows() * channels, op.x.dtype());
}

}  // namespace

void check_state_spans(std::string_view op, const std::vector<StateSpan>& spans, int64_t tokens, int64_t states) {
  int64_t next = 0;
  for (const StateSpan& span : spans) {
    require<ShapeError>(span.begin == next && span.length >= 0, "{}: a span of {} tokens begins at {}, expected {}", op,
                        span.length, span.begin, next);
    next += span.length;
    require<ShapeError>(states < 0 ? !span.continues : span.state >= 0 && span.state < states,
                        "{}: a span continues state {} of {}", op, span.state, std::max<int64_t>(states, 0));
  }
  require<ShapeError>(next == tokens, "{}: the spans have {} of {} tokens", op, next, tokens);
}

void check_shapes(const ShortConv& op) {
  check_both("ShortConv", op, op.y);
  check_state_spans("ShortConv", op.spans, op.x.rows(), op.states ? op.states.dim(0) : -1);
  if (!op.states) return;
  const int64_t row = op.weight.dim(0) * (op.weight.dim(-1) - 1);
  require<ShapeError>(
      op.states.rank() == 3 && op.states.dtype() == op.x.dtype() && op.states.numel() == op.states.dim(0) * row,
      "ShortConv: states is {}, expected [n, {}, {}] of {}", op.states, op.weight.dim(-1) - 1, op.weight.dim(0),
      name_of(op.x.dtype()));
}

void check_shapes(const ShortConvBackward& op) {
  constexpr std::string_view kName = "ShortConvBackward";
  check_both(kName, op, op.dy);
  check_state_spans(kName, op.spans, op.x.rows());
  expect_elements(kName, "dx", op.dx, op.x.numel(), op.x.dtype());
  expect_gradient(kName, "d_weight", op.d_weight, op.weight);
  if (op.d_bias) expect_elements(kName, "d_bias", op.d_bias, op.weight.dim(0), op.d_weight.dtype());
}

}  // namespace nought
