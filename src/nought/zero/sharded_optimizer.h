// ShardedOptimizer: any optimizer over the intervals that this rank updates, with fp32 master weights where the
// parameters are 16-bit, or without them. It knows trained segments alone.
//
// With optimizer sharding a rank updates what it owns, and the parameters are exchanged afterwards; without, every rank
// updates everything. An element's update is the same arithmetic either way: parameters are cut at the borders of all
// ranks' shards whatever the stage, sums over a parameter add the shards' sums in rank order, and a matrix that Muon
// orthogonalises is computed by one rank, for all.
#pragma once

#include <memory>
#include <vector>

#include "nought/comm/mesh.h"
#include "nought/optim/optimizer.h"
#include "nought/zero/reducer.h"
#include "nought/zero/residency.h"
#include "nought/zero/state.h"

namespace nought {

class ShardedOptimizer {
 public:
  ShardedOptimizer(const Context& context, const Mesh& mesh, DType dtype, OptimizerOptions options,
                   const std::vector<std::unique_ptr<Unit>>& units, Residency& residency, Reducer& reducer);

  /// By Unit, this rank's sum of squares of the summed gradients that it owns and counts for all, f64 [units]. The same
  /// values at every stage.
  Tensor owned_sums_of_squares();
  /// One update with the reduced gradients times gradient_scale. Collective. The caller exchanges the parameters
  /// afterwards.
  void update(double lr, double gradient_scale);

  /// Fills all states, and writes the parameters from the masters (the caller exchanges them).
  void load(const StateSource& source, int64_t updates);
  /// How many updates were made.
  int64_t updates() const { return updates_; }

  /// Elements of the segment's flat buffer that this rank updates.
  Interval scope(SegmentIndex at) const;
  /// One state of one piece of what this rank owns.
  struct OwnedState {
    const Parameter* parameter = nullptr;
    StateKind kind = StateKind::master;
    Interval in_parameter;          // elements of the flattened part that this rank holds
    size_t segment = 0, piece = 0;  // where it is kept
  };
  /// All states of the elements that this rank owns and counts for all: what a checkpoint writes.
  std::vector<OwnedState> owned() const;
  /// Their values ([piece] f32); 8-bit states are decoded, which loses nothing (see Quantize8).
  Tensor values(const OwnedState& state) const;
  /// Calls f(parameter, kind, tensor) with each tensor that this rank keeps of a state of the elements that it updates,
  /// as it is kept: codes and their scales are two. A master that is the parameter itself is left out.
  template <class F>
  void for_each_kept(F&& f) const {
    for (const SegmentState& state : states_)
      for (const TrainedPiece& piece : state.pieces) {
        if (state.master.raw() != state.parameter.raw())
          f(*piece.parameter, StateKind::master, state.part(piece, state.master));
        for (const PieceState& each : piece.states) {
          f(*piece.parameter, each.kind, each.values);
          if (each.scales) f(*piece.parameter, each.kind, each.scales);
        }
      }
  }

 private:
  /// One state of a piece: f32 or 16-bit values, or codes with a scale per block.
  struct PieceState {
    StateKind kind = StateKind::exp_avg;
    Tensor values, scales;
  };
  /// The part of one parameter that lies in one rank's shard, and what is kept for it.
  struct TrainedPiece {
    ParameterPiece piece;
    size_t place = 0;  // where the parameter is among those of the segment
    const Parameter* parameter = nullptr;
    int rank = 0;
    ParameterRule rule;
    std::vector<PieceState> states;
  };
  struct SegmentState {
    SegmentIndex at;
    Communicator* ranks = nullptr;  // that share it out
    bool writes = true;             // this rank writes what it owns of it to files: see writes_for_all()
    Interval counted;               // elements of the shard whose squares it adds up: see counted_for_all()
    Interval scope;                 // elements of the segment's flat buffer that this rank updates
    Tensor parameter, master;       // over the scope; master is parameter itself for f32, and without masters
    std::vector<const Parameter*> parameters;  // all of the segment, also those outside the scope
    std::vector<ParameterRule> rules;          // theirs
    std::vector<TrainedPiece> pieces;

    /// The piece's part of a tensor over the scope.
    Tensor part(const TrainedPiece& piece, const Tensor& scoped) const {
      return scoped.flat(piece.piece.in_segment.begin - scope.begin, piece.piece.in_segment.end - scope.begin);
    }
  };
  SegmentState make_state(SegmentIndex at, DType dtype) const;
  void allocate_states(SegmentState& state) const;

  UpdateSpan span_of(const SegmentState& state, const TrainedPiece& piece, double lr, double gradient_scale) const;
  /// Calls f(span, interval of the piece) with an f32 parameter and f32 states; where they are kept narrower, stretch
  /// by stretch.
  template <class F>
  void in_f32(const TrainedPiece& piece, const UpdateSpan& span, const F& f) const;
  void load(const StateSource& source, const TrainedPiece& piece, const PieceState& state) const;
  void encode(const TrainedPiece& piece, const PieceState& state, Interval stretch, const Tensor& x) const;
  void decode(const PieceState& state, Interval stretch, const Tensor& x) const;
  /// Narrows x to `into`, elements `stretch` of the piece: at random, by (seed, parameter, kind, update, element).
  void narrow(const TrainedPiece& piece, StateKind kind, Interval stretch, const Tensor& x, const Tensor& into) const;

  void update_segment(const SegmentState& state, double lr, double gradient_scale);
  void apply_lamb(const SegmentState& state, const Tensor& directions, double lr);
  void apply_muon(const SegmentState& state, const Tensor& directions, const Tensor& whole, double lr);
  /// Runs `op` on the piece; its tensors but squares are set here.
  void apply(const SegmentState& state, const TrainedPiece& piece, const Tensor& directions, ApplyDirection op) const;

  Context context_;
  Mesh mesh_;
  OptimizerOptions options_;
  const std::vector<std::unique_ptr<Unit>>& units_;
  Reducer& reducer_;
  Residency& residency_;
  std::vector<SegmentState> states_;  // one for each trained segment
  int64_t updates_ = 0;
};

}  // namespace nought
