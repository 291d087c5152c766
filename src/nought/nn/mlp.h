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
    Linear::Options up, down;  // gated: one product `up` gives [gate | up]
  };
  Mlp() = default;
  Mlp(Unit& unit, const Options& options);
  /// x, result: [tokens, hidden], or this rank's slice of the tokens.
  Var operator()(Tape& tape, const Var& x, const TokenSlices& slices = {}) const;

 private:
  bool gated_ = true;
  Activation activation_ = Activation::silu;
  Linear up_, down_;
};

}  // namespace nought
