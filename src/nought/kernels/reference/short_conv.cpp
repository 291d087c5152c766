#include <cmath>
#include <vector>

#include "nought/kernels/check.h"
#include "nought/kernels/reference/loops.h"

namespace nought::reference {
namespace {

/// The sums of one channel of a span: what is convolved and what comes of it, for each token.
template <class T>
struct Channel {
  using Sum = accumulator_t<T>;

  template <class Op>
  Channel(const Op& op, int64_t channel)
      : channels(op.weight.dim(0)),
        taps(op.weight.dim(-1)),
        c(channel),
        gated(op.gated),
        x(op.x.template data<T>()),
        bias(op.bias ? Sum{op.bias.template data<T>()[c]} : Sum{0}) {
    for (int64_t j = 0; j < taps; ++j) weight.push_back(Sum{op.weight.template data<T>()[c * taps + j]});
  }
  /// Part 0, 1 or 2 of a gated row; part 0 is the row without gates.
  int64_t at(int64_t token, int64_t part) const { return (token * (gated ? 3 : 1) + part) * channels + c; }
  Sum part(int64_t token, int64_t which) const { return Sum{x[at(token, which)]}; }
  Sum convolved(int64_t token) const { return gated ? part(token, 0) * part(token, 2) : part(token, 0); }
  /// u of the span's token t, and of those before it, which are the first.
  std::vector<Sum> inputs(const StateSpan& span, std::vector<Sum> before) const {
    for (int64_t t = 0; t < span.length; ++t) before.push_back(convolved(span.begin + t));
    return before;
  }
  Sum output(const std::vector<Sum>& u, int64_t t) const {
    Sum v = bias;
    for (int64_t j = 0; j < taps; ++j) v += weight[static_cast<size_t>(j)] * u[static_cast<size_t>(t + j)];
    return v;
  }

  int64_t channels, taps, c;
  bool gated;
  const T* x;
  Sum bias;
  std::vector<Sum> weight = {};
};

}  // namespace

void run(const ShortConv& op) {
  check(op);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Sum = accumulator_t<T>;
    for (int64_t c = 0; c < op.weight.dim(0); ++c) {
      const Channel<T> channel(op, c);
      const int64_t kept = channel.taps - 1;
      for (const StateSpan& span : op.spans) {
        const auto state = [&](int64_t i) -> T& {
          return op.states.data<T>()[(span.state * kept + i) * channel.channels + c];
        };
        std::vector<Sum> before(static_cast<size_t>(kept), Sum{0});
        for (int64_t i = 0; i < kept && span.continues; ++i) before[static_cast<size_t>(i)] = Sum{state(i)};
        const std::vector<Sum> u = channel.inputs(span, before);
        for (int64_t t = 0; t < span.length; ++t) {
          const Sum v = channel.output(u, t);
          const Sum y = op.gated ? channel.part(span.begin + t, 1) * v : v / (1 + std::exp(-v));
          op.y.data<T>()[(span.begin + t) * channel.channels + c] = rounded<T>(y);
        }
        for (int64_t i = 0; i < kept && op.states; ++i) state(i) = rounded<T>(u[static_cast<size_t>(span.length + i)]);
      }
    }
  });
}

namespace {

template <class T, class G>
void put_gradient(const Tensor& into, int64_t i, G value, bool accumulate) {
  T& element = into.data<T>()[i];
  element = rounded<T>(accumulate ? static_cast<G>(element) + value : value);
}

/// The gradients of one channel, over all spans.
template <class T, class D>
void channel_backward(const ShortConvBackward& op, int64_t c) {
  using Sum = accumulator_t<T>;
  const Channel<T> channel(op, c);
  const auto taps = static_cast<size_t>(channel.taps);
  std::vector<Sum> d_weight(taps, Sum{0});
  Sum d_bias = 0;
  for (const StateSpan& span : op.spans) {
    const std::vector<Sum> u = channel.inputs(span, std::vector<Sum>(taps - 1, Sum{0}));
    std::vector<Sum> du(u.size(), Sum{0});
    for (int64_t t = 0; t < span.length; ++t) {
      const int64_t token = span.begin + t;
      const Sum v = channel.output(u, t), dy = Sum{op.dy.data<T>()[token * channel.channels + c]};
      const Sum sigmoid = 1 / (1 + std::exp(-v));
      const Sum dv = op.gated ? dy * channel.part(token, 1) : dy * (sigmoid + v * sigmoid * (1 - sigmoid));
      if (op.gated) put_gradient<T>(op.dx, channel.at(token, 1), dy * v, op.accumulate_x);
      d_bias += dv;
      for (size_t j = 0; j < taps; ++j) {
        d_weight[j] += dv * u[static_cast<size_t>(t) + j];
        du[static_cast<size_t>(t) + j] += dv * channel.weight[j];
      }
    }
    for (int64_t t = 0; t < span.length; ++t) {
      const int64_t token = span.begin + t;
      const Sum d = du[static_cast<size_t>(t) + taps - 1];
      put_gradient<T>(op.dx, channel.at(token, 0), op.gated ? d * channel.part(token, 2) : d, op.accumulate_x);
      if (op.gated) put_gradient<T>(op.dx, channel.at(token, 2), d * channel.part(token, 0), op.accumulate_x);
    }
  }
  for (size_t j = 0; j < taps; ++j)
    put_gradient<D>(op.d_weight, c * channel.taps + static_cast<int64_t>(j), d_weight[j], op.accumulate_weight);
  if (op.d_bias) put_gradient<D>(op.d_bias, c, d_bias, op.accumulate_weight);
}

}  // namespace

void run(const ShortConvBackward& op) {
  check(op);
  visit_floats(op.x.dtype(), op.d_weight.dtype(), [&](auto tag, auto gradient) {
    for (int64_t c = 0; c < op.weight.dim(0); ++c)
      channel_backward<typename decltype(tag)::type, typename decltype(gradient)::type>(op, c);
  });
}

}  // namespace nought::reference
