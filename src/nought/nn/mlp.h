// Mlp: the feed-forward branch of a block.
#pragma once

#include "nought/nn/linear.h"

namespace nought {

/// down(activation(gate) * up) when gated, down(activation(up)) otherwise.
class Mlp {
 public:
  struct Options {
    bool gated = true;
    Activation activation = Activation::silu;
    Linear::Options up, down;  // gated: `up` packs [gate | up]
  };
  Mlp() = default;
  Mlp(Unit& unit, const Options& options);
  Var operator()(Tape& tape, const Var& x) const;

 private:
  bool gated_ = true;
  Activation activation_ = Activation::silu;
  Linear up_, down_;
};

}  // namespace nought
