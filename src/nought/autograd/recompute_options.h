// RecomputeOptions: what is computed a second time in the backward pass rather than kept. Plain values, no tensors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "nought/base/math.h"
#include "nought/offload/tier.h"

namespace nought {

/// What is computed again (arXiv 1604.06174, 2205.05198): the same operations on the same inputs, so no bit differs.
enum class Recompute : uint8_t {
  none,       // nothing
  selective,  // what is cheap to compute and large to store: norms and activations in front of a product
  full,       // everything but the inputs of Units
};
constexpr std::string_view name_of(Recompute recompute) {
  return recompute == Recompute::none ? "none" : recompute == Recompute::selective ? "selective" : "full";
}

struct RecomputeOptions {
  // NOLINTNEXTLINE(google-explicit-constructor): a mode alone is all that most callers say
  RecomputeOptions(Recompute recompute = Recompute::none) : mode(recompute) {}

  Recompute mode;
  // Full recompute alone heeds these.
  int64_t checkpoints = 0;   // how many inputs are kept in a pass through a stack of Units; 0: every Unit's
  int64_t interval = 0;      // or so many neighbours run again from one input; 0: as `checkpoints` says
  OffloadTier tier = {};     // it holds the kept inputs
  bool contiguous = false;   // they lie in one block that stays, rather than in blocks of their own
  bool partitioned = false;  // each of the ranks that have the same inputs keeps a part of them
  bool fp8 = false;          // they are kept as MXFP8 (EncodeMxfp8): what runs again reads rounded inputs
  // With any mode. Tiles of tokens in which an MLP is computed, each again in the backward pass: nothing of it is kept
  // but its input (arXiv 2506.13996). 1: at once; 0: as many as mlp_tiles_of() says.
  int64_t mlp_tiles = 1;
  // With any mode. Tiles of a Unit's parameters, each of which is gathered, computed with, reduced and released before
  // the next one (see autograd/unit.h). 1: Units have no tiles; 0: nobody has chosen yet, and they have none.
  int64_t unit_tiles = 1;

  /// How many of `units` neighbours run again from one kept input.
  int64_t units_per_checkpoint(int64_t units) const {
    if (interval > 0) return interval;
    return checkpoints > 0 ? ceil_div(units, std::min(checkpoints, units)) : 1;
  }
  /// For an MLP of so many tokens: by default a tile has as many tokens as a token has elements.
  int64_t mlp_tiles_of(int64_t tokens, int64_t hidden) const {
    return std::clamp<int64_t>(mlp_tiles == 0 ? ceil_div(tokens, hidden) : mlp_tiles, 1, std::max<int64_t>(tokens, 1));
  }
  /// "full recompute, 4 checkpoints on the host"; empty if nothing is computed again.
  std::string str() const;
  bool operator==(const RecomputeOptions&) const = default;
};

}  // namespace nought
