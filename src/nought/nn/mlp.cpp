#include "nought/nn/mlp.h"

namespace nought {

Mlp::Mlp(Unit& unit, const Options& options)
    : gated_(options.gated),
      activation_(options.activation),
      up_(unit, options.up),
      down_(unit, options.down),
      recompute_(options.recompute),
      hidden_(options.up.in) {}

Var Mlp::of_tokens(Tape& tape, const Var& x) const {
  const Var up = up_.multiply(tape, x);
  return down_.multiply(tape, gated_ ? gated_activate(tape, up, activation_) : activate(tape, up, activation_));
}

Var Mlp::operator()(Tape& tape, const Var& x, const TokenSlices& slices) const {
  const Var all = up_.enter(tape, x, slices);
  const int64_t tiles = recompute_.mlp_tiles_of(all.value.rows(), hidden_);
  const auto body = [this](Tape& on, const Var& tokens) { return of_tokens(on, tokens); };
  const Var y = tiles > 1 ? tape.run_tiles(all, tiles, up_.trained() || down_.trained(), body) : of_tokens(tape, all);
  return down_.leave(tape, y, slices);
}

}  // namespace nought
