// ShardedOptimizer: Adam over the intervals that this rank updates, with fp32 master weights where the parameters are
// 16-bit.
//
// With optimizer sharding a rank updates what it owns, and the parameters are exchanged afterwards; without, every rank
// updates everything. An element's update is the same arithmetic either way.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "nought/optim/adam_options.h"
#include "nought/zero/reducer.h"
#include "nought/zero/residency.h"
#include "nought/zero/state.h"

namespace nought {

class ShardedOptimizer {
 public:
  ShardedOptimizer(const Context& context, Communicator& ranks, Policy policy, DType dtype, AdamOptions options,
                   const std::vector<std::unique_ptr<Unit>>& units, Residency& residency, Reducer& reducer);

  /// This rank's sum of squares of the summed gradients that it owns, in f64. The same value at every stage.
  double owned_sum_squares();
  /// One update with the reduced gradients times gradient_scale. The caller exchanges the parameters afterwards.
  void update(double lr, double gradient_scale);

  /// Fills masters and moments, and writes the parameters from the masters (the caller exchanges them).
  void load(const StateSource& source, int64_t updates);
  /// How many updates were made.
  int64_t updates() const { return updates_; }

  /// Elements of the Unit's flat buffer that this rank updates.
  Interval scope(size_t unit) const;
  /// The state of the elements that this rank owns ([shard] f32): what a checkpoint writes.
  Tensor owned(size_t unit, StateKind kind) const;

 private:
  struct State {
    Tensor parameter, master, exp_avg, exp_avg_sq;  // all over scope(unit); master is parameter itself for f32
    std::vector<DecayRun> runs;
  };
  Tensor state(size_t unit, StateKind kind) const;

  const Context& context_;
  Communicator& ranks_;
  Policy policy_;
  AdamOptions options_;
  const std::vector<std::unique_ptr<Unit>>& units_;
  Reducer& reducer_;
  Residency& residency_;
  std::vector<State> states_;
  int64_t updates_ = 0;
};

}  // namespace nought
