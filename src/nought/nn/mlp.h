// Mlp: the feed-forward layer of a block.
#pragma once

#include <vector>

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
    /// Tiles of its Unit: each has a range of the features between `up` and `down`, and y is the sum over the tiles.
    /// None: the Unit has all of them.
    std::vector<Unit*> tiles = {};
  };
  Mlp() = default;
  Mlp(Unit& unit, const Options& options);
  /// x, result: [tokens, hidden], or this rank's slice of the tokens. In tiles of tokens (arXiv 2506.13996) nothing as
  /// wide as its activations is kept or exists of all tokens. What ranks send is the same: they exchange all tokens at
  /// once. unread: where the tape says that results are unread, the value of this one is not read either.
  Var operator()(Tape& tape, const Var& x, const TokenSlices& slices = {}, bool unread = false) const;

 private:
  /// What one tile has, or the whole layer.
  struct Part {
    Unit* tile = nullptr;
    Linear up, down;
  };
  /// The result for some tokens, between the exchanges of the ranks.
  Var of_tokens(Tape& tape, const Part& part, const Var& x) const;
  /// The result for all tokens.
  Var of_part(Tape& tape, const Part& part, const Var& x) const;

  bool gated_ = true;
  Activation activation_ = Activation::silu;
  std::vector<Part> parts_;
  RecomputeOptions recompute_ = {};
  int64_t hidden_ = 0;
};

}  // namespace nought
