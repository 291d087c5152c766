// A table whose rows lie in tiles of a Unit (autograd/unit.h): lookups, logits and their cross-entropy, tile by tile.
// One tile is whole at a time, and its gradient is reduced before that of the next is formed.
//
// Design goals: neither the table nor the logits of all tokens ever exist; each tile is gathered once in the forward
// and once in the backward pass, as the whole table would be. So the backward pass computes the logits again.
// Non-goals: losses that are no cross-entropy, and ranks that share the table out as well.
#pragma once

#include <span>
#include <vector>

#include "nought/parallel/vocabulary.h"

namespace nought {

/// The rows [held.begin, held.end) of a table.
struct VocabularyTile {
  Unit* unit = nullptr;
  ParameterView table;
  Interval held;
};
using VocabularyTiles = std::vector<VocabularyTile>;

/// Declares the table [vocabulary, hidden] over tiles of a Unit, which are these.
VocabularyTiles add_vocabulary_tiles(std::span<Unit* const> tiles, const std::string& name, const Shape& table,
                                     Init init, ParameterRole role);

/// held_ids() for each tile.
std::vector<HeldIds> ids_of_tiles(const Context& context, std::span<const int32_t> ids, const VocabularyTiles& tiles);
/// y[t] = table[ids[t]].
Var tiled_embedding(Tape& tape, const std::vector<HeldIds>& ids, const VocabularyTiles& tiles);

/// x W^T: [tokens, vocabulary], without gradients.
Tensor tiled_logits(Tape& tape, const Var& x, const VocabularyTiles& tiles);

/// What the cross-entropy of all tokens reads, by tile.
struct TiledTargets {
  std::vector<Tensor> in_tile;  // for each tile, [tokens] i32: its row, or kIgnoredId where another tile has the target
  std::vector<Tensor> beside;   // the same for the gradient: the number of its rows where another tile has it
  std::vector<Tensor> tile;     // one, [tokens] i32: which tile has the target
  Tensor weights;               // [tokens] f32, or undefined
};
TiledTargets targets_of_tiles(const Context& context, std::span<const int32_t> targets, Tensor weights,
                              const VocabularyTiles& tiles);

/// The sum of the cross-entropies of the logits x W^T, f64 [1], as cross_entropy_head() has it. shared: other Units
/// read the table as well, and add to the tiles' gradients later.
Var tiled_cross_entropy_head(Tape& tape, const Var& x, const VocabularyTiles& tiles, const TiledTargets& targets,
                             double gradient_scale, double softcap, bool shared);

}  // namespace nought
