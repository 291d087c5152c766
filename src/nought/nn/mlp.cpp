#include "nought/nn/mlp.h"

namespace nought {

Mlp::Mlp(Unit& unit, const Options& options)
    : gated_(options.gated), activation_(options.activation), up_(unit, options.up), down_(unit, options.down) {}

Var Mlp::operator()(Tape& tape, const Var& x, const TokenSlices& slices) const {
  const Var up = up_(tape, x, slices);
  return down_(tape, gated_ ? gated_activate(tape, up, activation_) : activate(tape, up, activation_), slices);
}

}  // namespace nought
