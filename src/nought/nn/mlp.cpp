#include "nought/nn/mlp.h"

namespace nought {

Mlp::Mlp(Unit& unit, const Options& options)
    : gated_(options.gated), activation_(options.activation), up_(unit, options.up), down_(unit, options.down) {}

Var Mlp::operator()(Tape& tape, const Var& x) const {
  const Var up = up_(tape, x);
  return down_(tape, gated_ ? gated_activate(tape, up, activation_) : activate(tape, up, activation_));
}

}  // namespace nought
