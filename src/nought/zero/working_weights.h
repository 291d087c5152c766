// WorkingWeights: the weights that passes compute with, where they are not the stored ones: made when a Unit is leased.
//
// Masters, optimizer states, collectives, checkpoints and exports know stored weights alone. A pass changes a copy of
// each segment that has such weights, which lives until the pass ends. Ranks that share a matrix join it first, unless
// the change goes by rows and each has whole ones, so that no bit depends on the layout.
#pragma once

#include <string>
#include <vector>

#include "nought/comm/mesh.h"
#include "nought/kernels/kernels.h"
#include "nought/nn/model.h"
#include "nought/zero/partition.h"
#include "nought/zero/sharding_options.h"
#include "nought/zero/weight_change.h"

namespace nought {

class Residency;

/// What the options round of a model, in the order in which a pass does it. ConfigError for layers that are not there
/// and that can not be changed so.
std::vector<ChangedWeight> changed_weights(const ShardingOptions& options, const Model& model);
/// Which layers compute with what: lines for the user.
std::vector<std::string> describe_changed_weights(const ShardingOptions& options, const Model& model);

class WorkingWeights {
 public:
  WorkingWeights(const Context& context, const Mesh& mesh, const std::vector<ChangedWeight>& weights,
                 const Model& model);

  /// After the Unit is leased for a pass: changes its weights as the step after so many updates does. Calls nest.
  void begin_pass(size_t unit, const Residency& residency, int64_t updates);
  void end_pass(size_t unit);
  /// The flat buffer of a segment with the changed weights, between the two; undefined where nothing is changed.
  Tensor values(SegmentIndex at) const;

 private:
  struct State {
    std::vector<ChangedWeight> weights;
    std::vector<Tensor> segments;  // during a pass
    int passes = 0;
  };
  /// Changes what this rank holds of a parameter, in place.
  void change(const ChangedWeight& weight, int64_t updates, const Tensor& held) const;

  Context context_;
  Mesh mesh_;
  const Model& model_;
  std::vector<State> states_;  // by Unit
};

}  // namespace nought
