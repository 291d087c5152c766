// DeltaNet: a layer in place of attention that keeps one matrix for each head of a sequence, by the gated delta rule
// (arXiv 2412.06464).
#pragma once

#include <string>

#include "nought/nn/norm.h"
#include "nought/nn/short_conv.h"

namespace nought {

/// y = out(norm(delta_rule(silu(conv(q | k | v)), b, a)) * silu(z)), the norm that of each value head.
class DeltaNet {
 public:
  struct Options {
    /// All that is projected: q, k, v and z, then b and a. Grouped: one tensor for the former and one for the latter,
    /// and each has the parts of a key head, with its value heads, in turn. Otherwise z has a tensor of its own.
    Linear::Options qkv, z, ba, out;
    bool grouped = false;
    DeltaShape shape;            // of all ranks
    int64_t taps = 0;            // of the convolution
    std::string conv, norm;      // ".weight" is added
    std::string a_log, dt_bias;  // full names
    double norm_eps = 1e-6, std = 0.02;
    TensorRanks ranks = {};  // each has some key heads, with their value heads
  };
  DeltaNet(Unit& unit, const Options& options);
  /// x, result: [tokens, hidden], or this rank's slice of the tokens. With a `cache` the tape must not record.
  Var operator()(Tape& tape, const Var& x, const Sequences& sequences, const StateCache* cache) const;
  /// For sequences of up to `capacity` tokens.
  StateCache make_cache(const Context& context, int64_t capacity, DType dtype, int64_t sequences) const;

 private:
  bool grouped_ = false;
  DeltaShape shape_;  // of this rank
  int64_t taps_ = 0;
  double norm_eps_ = 1e-6;
  Linear qkv_, z_, ba_, out_;
  ParameterView conv_, a_log_, dt_bias_, norm_;
};

}  // namespace nought
