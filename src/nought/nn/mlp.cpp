#include "nought/nn/mlp.h"

namespace nought {

Mlp::Mlp(Unit& unit, const Options& options)
    : gated_(options.gated), activation_(options.activation), recompute_(options.recompute), hidden_(options.up.in) {
  if (options.tiles.empty()) parts_.push_back({nullptr, Linear(unit, options.up), Linear(unit, options.down)});
  const auto count = static_cast<int>(options.tiles.size());
  for (int index = 0; index < count; ++index) {
    Unit& tile = *options.tiles[static_cast<size_t>(index)];
    Linear::Options up = options.up, down = options.down;
    up.tile = down.tile = {index, count};
    // The sum has the bias once. It is the Unit's: ranks that do not add it read it behind their own sum.
    down.bias = options.down.bias && index == 0;
    down.bias_unit = &unit;
    Linear first(tile, up);
    parts_.push_back({&tile, std::move(first), Linear(tile, down)});
  }
}

Var Mlp::of_tokens(Tape& tape, const Part& part, const Var& x) const {
  const Var up = part.up.multiply(tape, x);
  return part.down.multiply(tape, gated_ ? gated_activate(tape, up, activation_) : activate(tape, up, activation_));
}

Var Mlp::of_part(Tape& tape, const Part& part, const Var& x) const {
  const int64_t tiles = recompute_.mlp_tiles_of(x.value.rows(), hidden_);
  const auto body = [this, &part](Tape& on, const Var& tokens) { return of_tokens(on, part, tokens); };
  return tiles > 1 ? tape.run_tiles(x, tiles, part.up.trained() || part.down.trained(), body)
                   : of_tokens(tape, part, x);
}

Var Mlp::operator()(Tape& tape, const Var& x, const TokenSlices& slices, bool unread) const {
  const Part& first = parts_.front();
  const Var all = first.up.enter(tape, x, slices);
  Var y;
  for (const Part& part : parts_) {
    const auto body = [this, &part](Tape& on, const Var& in) { return of_part(on, part, in); };
    const Var of_tile = part.tile == nullptr
                            ? body(tape, all)
                            : tape.run_tile(*part.tile, all, body, {.unread = unread && tape.result_is_unread()});
    y = &part == &first ? of_tile : add_to(tape, y, of_tile);
  }
  return first.down.leave(tape, y, slices);
}

}  // namespace nought
