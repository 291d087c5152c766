// TensorRanks: the ranks that hold the parts of the same matrices, as layers see them (arXiv 1909.08053).
//
// Design goals: a layer asks for its part of a dimension and names the whole tensor, so that files and other meshes
// know it; one rank is the layer without any of this. Non-goals: what ranks send to each other (parallel/conjugate).
#pragma once

#include <optional>
#include <string>

#include "nought/autograd/unit.h"
#include "nought/comm/mesh.h"

namespace nought {

/// Cheap to copy. The mesh that it was made of outlives it.
class TensorRanks {
 public:
  /// One rank, which holds everything.
  TensorRanks() = default;
  /// The ranks of the mesh that differ along this axis: tensor, or expert_tensor for what experts have.
  explicit TensorRanks(const Mesh& mesh, Axis axis = Axis::tensor);

  int size() const { return group_ ? group_->size() : 1; }
  int rank() const { return group_ ? group_->rank() : 0; }
  bool several() const { return group_ != nullptr; }
  /// Error if there is one rank.
  Communicator& group() const;

  /// The indices that a rank has of a dimension that is cut. The last ranks may have fewer than the others.
  Interval part(int64_t extent, int rank) const;
  Interval part(int64_t extent) const { return part(extent, rank()); }

  /// Declares the part of a parameter that this rank holds. `global`: the whole tensor; it is cut along `dim`. fused:
  /// see Cut.
  struct Whole {
    Shape global;
    int dim = 0;
    std::vector<int64_t> fused = {};
    /// Along `dim`: the ranks cut this tile, and hold nothing of the others. See Placement.
    std::optional<TensorTile> tile = {};
  };
  ParameterView add(Unit& unit, std::string name, const Whole& whole, Init init,
                    ParameterRole role = ParameterRole::matrix) const;
  /// Declares a parameter that all ranks hold, and of whose gradient each forms a part.
  ParameterView add_partial(Unit& unit, std::string name, Shape shape, Init init, ParameterRole role) const;

 private:
  Communicator* group_ = nullptr;
  Axis axis_ = Axis::tensor;
};

}  // namespace nought
