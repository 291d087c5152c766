// Placement: how a parameter is cut over the ranks of the mesh. Plain data; zero/placement computes with it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "nought/base/math.h"
#include "nought/comm/grid.h"
#include "nought/tensor/shape.h"

namespace nought {

/// One dimension of a tensor is cut into as many parts as an axis of the mesh has ranks.
struct Cut {
  Axis axis = Axis::tensor;
  int dim = 0;
  /// So many neighbouring indices stay together: the rows of a head. The first parts have as many of them as any, the
  /// last ones may have fewer or none.
  int64_t granule = 1;
  /// The extents of tensors that lie one behind the other along the dimension and are each cut on their own, as q, k
  /// and v in one matrix: a part is then several intervals. None: the dimension is one tensor.
  std::vector<int64_t> fused = {};
  /// The part that has all indices, and the others none: the tensor belongs to one rank along the axis, as that of one
  /// expert does. Neither granule nor fused counts then, and another cut may be of the same dimension.
  std::optional<int> owner = {};
  /// Beside an owner: a second part that has all indices, with the same values, as the last pipeline stage has of a
  /// tied embedding. The owner is asked for them.
  std::optional<int> copy = {};

  /// Whether a part has anything of a tensor that has an owner.
  bool holds(int part) const { return part == owner || part == copy; }
};

/// The indices of a dimension of `extent` that part `part` of `parts` has: rising, none touching the next.
std::vector<Interval> indices_of_part(int64_t extent, const Cut& cut, int part, int parts);

/// What a tile of a Unit (autograd/unit.h) has of a tensor: some of the indices of a dimension.
struct TensorTile {
  int dim = 0;
  std::vector<Interval> kept;  // rising, none touching the next

  int64_t size() const;
};
/// The indices that tile `index` of `count` has: of each tensor that is fused along the dimension its share, the last
/// tiles of which may have less.
TensorTile tile_of(const Shape& global, int dim, const std::vector<int64_t>& fused, int index, int count);

/// A tensor that ranks hold in parts. Without cuts, each rank holds all of it.
struct Placement {
  Shape global;
  std::vector<Cut> cuts = {};  // each along another axis of one grid, and of another dimension but for owners
  /// The part of the global tensor that this parameter is. The cuts are those of the part, and other parameters of the
  /// same name have the rest. Not given: it is all of it.
  std::optional<TensorTile> tile = {};

  /// The shape of what the ranks hold together: the global tensor's, or the tile's.
  Shape extents() const;
  /// True if each rank holds all of the global tensor.
  bool is_whole() const { return cuts.empty() && !tile; }

  /// The axes that cut it.
  Axes axes() const {
    Axes all;
    for (const Cut& cut : cuts) all.add(cut.axis);
    return all;
  }
};

}  // namespace nought
