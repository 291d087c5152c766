#include "nought/nn/short_conv.h"

#include "nought/autograd/short_conv.h"

namespace nought {

std::vector<StateSpan> state_spans(const Sequences& sequences, const StateCache* cache) {
  std::vector<StateSpan> spans;
  for (const AttentionSpan& span : sequences.spans) {
    StateSpan next{.begin = span.q_begin, .length = span.q_length};
    if (cache) next.state = span.k_begin / cache->capacity, next.continues = span.first_position() > 0;
    spans.push_back(next);
  }
  return spans;
}

ShortConvLayer::ShortConvLayer(Unit& unit, const Options& options) : in_(unit, options.in) {
  weight_ = options.ranks.add(unit, options.weight + ".weight", {{options.channels, 1, options.taps}, 0},
                              Init::normal(options.std), ParameterRole::filter);
  if (options.bias)
    bias_ =
        options.ranks.add(unit, options.weight + ".bias", {{options.channels}, 0}, Init::zeros(), ParameterRole::bias);
  out_ = Linear(unit, options.out);
}

Var ShortConvLayer::operator()(Tape& tape, const Var& x, const Sequences& sequences, const StateCache* cache) const {
  const Var gates = in_(tape, x, sequences.slices);
  const Var y = short_conv(tape, gates, weight_, bias_, /*gated=*/true, state_spans(sequences, cache),
                           cache ? cache->inputs : Tensor{});
  return out_(tape, y, sequences.slices);
}

StateCache ShortConvLayer::make_cache(const Context& context, int64_t capacity, DType dtype, int64_t sequences) const {
  const Shape& weight = weight_.shape();
  const Tensor inputs = context.empty({sequences, weight[2] - 1, weight[0]}, dtype, Category::kv_cache);
  context.zero(inputs);
  return {.inputs = inputs, .capacity = capacity};
}

}  // namespace nought
