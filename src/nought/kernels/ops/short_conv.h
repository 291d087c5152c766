// Short causal convolutions of each channel, and where sequences with a state lie.
#pragma once

#include <algorithm>
#include <vector>

#include "nought/kernels/operation.h"

namespace nought {

/// A sequence, or the next tokens of one, among the tokens of an operation that keeps a state along it. Operations with
/// states begin with the one of this number if the span `continues` a sequence, else with zeros, and leave what follows
/// the span there.
struct StateSpan {
  int64_t begin = 0, length = 0;
  int64_t state = 0;
  bool continues = false;
};

/// Whether one of the spans needs the states that it finds.
inline bool any_continues(const std::vector<StateSpan>& spans) {
  return std::any_of(spans.begin(), spans.end(), [](const StateSpan& span) { return span.continues; });
}

/// The taps of a convolution that kernels have room for.
inline constexpr int64_t kMostTaps = 16;

/// v[t, c] = bias[c] + sum over j < K of weight[c, j] * u[t - K + 1 + j, c], within each span (of Conv1d, groups =
/// channels). gated: x: [tokens, 3 C] = [b | c | x] per row, u = b * x and y = c * v (LFM2). Otherwise x: [tokens, C],
/// u = x and y = silu(v). y: [tokens, C]; weight: [C, ..., K]; bias: [C], optional. The spans cover all tokens, one
/// behind the other. states: [n, K - 1, C], optional: the last values of u before and after each span.
struct ShortConv {
  Tensor x, weight, y;
  Tensor bias = {};
  std::vector<StateSpan> spans = {};
  bool gated = false;
  Tensor states = {};

  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("weight", weight, kReads);
    v("bias", bias, kReads.if_defined());
    const int64_t kept = weight.rank() > 0 ? weight.dim(-1) - 1 : 0;
    v("states", states, (any_continues(spans) ? kUpdates : kUpdates.if_defined()).of_rows(std::ssize(spans) * kept));
    v("y", y, kWrites);
    v("spans", spans);
    v("gated", gated);
  }
};

/// dx [+=], d_weight [+=] and d_bias [+=] of a ShortConv without states, which it computes again from x;
/// accumulate_weight is for the last two. d_bias may be undefined. d_weight, d_bias: dtype of x or f32.
struct ShortConvBackward {
  Tensor x, weight, dy, dx, d_weight;
  Tensor bias = {}, d_bias = {};
  std::vector<StateSpan> spans = {};
  bool gated = false;
  bool accumulate_x = false, accumulate_weight = false;

  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("weight", weight, kReads);
    v("bias", bias, kReads.if_defined());
    v("dy", dy, kReads);
    v("dx", dx, kWrites.adding(accumulate_x));
    v("d_weight", d_weight, kWrites.adding(accumulate_weight));
    v("d_bias", d_bias, kWrites.adding(accumulate_weight).if_defined());
    v("spans", spans);
    v("gated", gated);
    v("accumulate_x", accumulate_x);
    v("accumulate_weight", accumulate_weight);
  }
};

}  // namespace nought
