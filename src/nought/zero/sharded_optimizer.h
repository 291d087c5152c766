// ShardedOptimizer: any optimizer over the intervals that this rank updates, with fp32 master weights where the
// parameters are 16-bit, or without them.
//
// With optimizer sharding a rank updates what it owns, and the parameters are exchanged afterwards; without, every rank
// updates everything. An element's update is the same arithmetic either way: parameters are cut at the borders of all
// ranks' shards whatever the stage, sums over a parameter add the shards' sums in rank order, and a matrix that Muon
// orthogonalises is computed by one rank, for all.
#pragma once

#include <memory>
#include <vector>

#include "nought/optim/optimizer.h"
#include "nought/zero/reducer.h"
#include "nought/zero/residency.h"
#include "nought/zero/state.h"

namespace nought {

class ShardedOptimizer {
 public:
  ShardedOptimizer(const Context& context, Communicator& ranks, Policy policy, DType dtype, OptimizerOptions options,
                   const std::vector<std::unique_ptr<Unit>>& units, Residency& residency, Reducer& reducer);

  /// By Unit, this rank's sum of squares of the summed gradients that it owns, in f64. The same values at every stage.
  std::vector<double> owned_sums_of_squares();
  /// One update with the reduced gradients times gradient_scale. Collective. The caller exchanges the parameters
  /// afterwards.
  void update(double lr, double gradient_scale);

  /// Fills all states, and writes the parameters from the masters (the caller exchanges them).
  void load(const StateSource& source, int64_t updates);
  /// How many updates were made.
  int64_t updates() const { return updates_; }

  /// Elements of the Unit's flat buffer that this rank updates.
  Interval scope(size_t unit) const;
  /// One state of one piece of what this rank owns.
  struct OwnedState {
    StateKind kind = StateKind::master;
    Piece piece;
    size_t segment = 0;
  };
  /// All states of the elements that this rank owns: what a checkpoint writes.
  std::vector<OwnedState> owned(size_t unit) const;
  /// Their values ([piece] f32); 8-bit states are decoded, which loses nothing (see Quantize8).
  Tensor values(size_t unit, const OwnedState& state) const;

 private:
  /// A state of a segment: f32 or 16-bit values, or codes with a scale per block.
  struct SegmentState {
    StateKind kind = StateKind::exp_avg;
    Tensor values, scales;
  };
  /// The part of one parameter that lies in one rank's shard.
  struct Segment {
    Piece piece;
    int rank = 0;
    ParameterRule rule;
    std::vector<SegmentState> states;
  };
  struct UnitState {
    Tensor parameter, master;          // over scope(unit); master is parameter itself for f32, and without masters
    std::vector<ParameterRule> rules;  // of all parameters of the Unit, also where no part of them is in the scope
    std::vector<Segment> segments;
  };
  std::vector<Segment> segments_of(size_t unit, const std::vector<ParameterRule>& rules) const;
  void allocate_states(size_t unit, std::vector<Segment>& segments) const;

  /// The segment's part of a tensor over scope(unit).
  Tensor part(size_t unit, const Segment& segment, const Tensor& scoped) const;
  UpdateSpan span_of(size_t unit, const Segment& segment, double lr, double gradient_scale) const;
  /// Calls f(span, interval of the segment) with an f32 parameter and f32 states; where they are kept narrower, stretch
  /// by stretch.
  template <class F>
  void in_f32(size_t unit, const Segment& segment, const UpdateSpan& span, const F& f) const;
  void encode(size_t unit, const Segment& segment, const SegmentState& state, Interval stretch, const Tensor& x) const;
  void decode(const SegmentState& state, Interval stretch, const Tensor& x) const;
  /// Narrows x to `into`, elements `stretch` of the segment: at random, by (seed, parameter, kind, update, element).
  void narrow(size_t unit, const Segment& segment, StateKind kind, Interval stretch, const Tensor& x,
              const Tensor& into) const;

  void update_unit(size_t unit, double lr, double gradient_scale);
  void apply_lamb(size_t unit, const Tensor& directions, double lr);
  void apply_muon(size_t unit, const Tensor& directions, const Tensor& whole, double lr);
  void apply(size_t unit, const Segment& segment, const Tensor& directions, double step, double keep) const;

  Context context_;
  Communicator& ranks_;
  Policy policy_;
  OptimizerOptions options_;
  const std::vector<std::unique_ptr<Unit>>& units_;
  Reducer& reducer_;
  Residency& residency_;
  std::vector<UnitState> states_;
  int64_t updates_ = 0;
};

}  // namespace nought
