// DirectedUpdate: the updates of optimizers that give a direction first: Lamb, which needs norms of whole parameters,
// and Muon, which orthogonalises whole matrices. Ranks talk to each other for them.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "nought/comm/mesh.h"
#include "nought/optim/optimizer.h"
#include "nought/zero/residency.h"
#include "nought/zero/state_table.h"

namespace nought {

class DirectedUpdate {
 public:
  /// What is referred to stays.
  DirectedUpdate(const Context& context, const Mesh& mesh, const Method& method,
                 const std::vector<std::unique_ptr<Unit>>& units, Residency& residency, StateTable& table)
      : context_(context), mesh_(mesh), method_(method), units_(units), residency_(residency), table_(table) {}

  /// Updates a piece, or writes its direction where `directions`, over the scope, has it.
  using Form = std::function<void(const TileView& tile, const TrainedPiece& piece, const Tensor& directions)>;
  /// Forms the directions of a segment, and applies them. Collective.
  void update(const SegmentStates& state, double lr, const Form& form);

 private:
  /// For each parameter of a segment, the sum of squares of its elements, and of its direction's.
  struct Squares {
    Tensor on_device, on_host;  // the second is the first where the host has access to the device
  };
  Squares make_squares(const SegmentStates& state) const;
  void add_squares(const TileView& tile, const TrainedPiece& piece, const Tensor& directions,
                   const Squares& sums) const;
  /// The sums over all ranks that hold parts of the parameters.
  Squares sum_squares(const SegmentStates& state, const Squares& mine) const;
  void apply_lamb(const SegmentStates& state, const Tensor& directions, const Squares& sums, double lr) const;
  void apply_muon(const SegmentStates& state, const Tensor& directions, const Tensor& whole, double lr) const;
  /// Runs make(tile, piece) on each piece that has a direction; the operation's tensors but squares are set here.
  void apply(const SegmentStates& state, const Tensor& directions,
             const std::function<ApplyDirection(const TileView&, const TrainedPiece&)>& make) const;

  Context context_;
  Mesh mesh_;
  Method method_;
  const std::vector<std::unique_ptr<Unit>>& units_;
  Residency& residency_;
  StateTable& table_;
};

}  // namespace nought
