// ShortConv: a layer in place of attention that mixes each token with the few before it (LFM2). And the states that
// such layers keep of sequences.
#pragma once

#include <string>
#include <vector>

#include "nought/nn/attention.h"
#include "nought/nn/linear.h"

namespace nought {

/// What a layer keeps of each sequence between calls, so that generation does not compute it again.
struct StateCache {
  Tensor inputs;         // [sequences, taps - 1, channels]: the last inputs of a convolution
  Tensor memory = {};    // [sequences, value heads, key_dim, value_dim] f32: the state of a delta rule
  int64_t capacity = 0;  // tokens of a sequence in the cache of keys: span.k_begin / capacity is its number
};

/// The sequences of a batch as operations with states take them, from zeros or from `cache`.
std::vector<StateSpan> state_spans(const Sequences& sequences, const StateCache* cache);

/// y = out(c * conv(b * x)), [b | c | x] = in(x): a causal convolution of each channel.
class ShortConvLayer {
 public:
  struct Options {
    Linear::Options in, out;
    std::string weight;  // of the convolution: ".weight" and ".bias" are added
    int64_t channels = 0, taps = 0;
    bool bias = false;
    double std = 0.02;
    TensorRanks ranks = {};  // each has some channels
  };
  ShortConvLayer(Unit& unit, const Options& options);
  /// x, result: [tokens, hidden], or this rank's slice of the tokens. With a `cache` the tape must not record.
  Var operator()(Tape& tape, const Var& x, const Sequences& sequences, const StateCache* cache) const;
  /// For sequences of up to `capacity` tokens.
  StateCache make_cache(const Context& context, int64_t capacity, DType dtype, int64_t sequences) const;

 private:
  Linear in_, out_;
  ParameterView weight_, bias_;
};

}  // namespace nought
