// Mlp: the feed-forward layer of a block.
#pragma once

#include "nought/nn/linear.h"

namespace nought {

/// Gated: y = down(activation(gate(x)) * up(x)). Else: y = down(activation(up(x))).
class Mlp {
 public:
  struct Options {
    bool gated = true;
    Activation activation = Activation::silu;
    Linear::Options up, down;         // gated: one product `up` gives [gate | up]
    RecomputeOptions recompute = {};  // in how many tiles of tokens it is computed
  };
  Mlp() = default;
  Mlp(Unit& unit, const Options& options);
  /// x, result: [tokens, hidden], or this rank's slice of the tokens. In tiles (arXiv 2506.13996) nothing as wide as
  /// its activations is kept or exists of all tokens. What ranks send is the same: they exchange all tokens at once.
  Var operator()(Tape& tape, const Var& x, const TokenSlices& slices = {}) const;

 private:
  /// Of some tokens, between what the ranks exchange.
  Var of_tokens(Tape& tape, const Var& x) const;

  bool gated_ = true;
  Activation activation_ = Activation::silu;
  Linear up_, down_;
  RecomputeOptions recompute_ = {};
  int64_t hidden_ = 0;
};

}  // namespace nought
