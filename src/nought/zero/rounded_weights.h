// RoundedWeights: the weights of few bits that passes compute with, made of the stored ones when a Unit is leased.
//
// A pass reads these values, and the gradient that it forms is that of the stored weight: a straight-through gradient
// needs nothing else. Masters, optimizer states, collectives, checkpoints and exports know stored weights alone. A pass
// rounds a copy of each segment that has such weights, which lives until the pass ends. Ranks that share a matrix join
// it first, so that the groups are those of the whole matrix and no bit depends on the layout.
#pragma once

#include <string>
#include <vector>

#include "nought/comm/mesh.h"
#include "nought/compress/weight_quantization.h"
#include "nought/kernels/kernels.h"
#include "nought/nn/model.h"
#include "nought/zero/partition.h"

namespace nought {

class Residency;

/// A matrix or table of a model that one of the groups names.
struct RoundedWeight {
  size_t unit = 0, parameter = 0;
  size_t group = 0;    // in WeightQuantization::groups
  int64_t pieces = 1;  // its elements are rounded in so many groups of neighbours
};
/// Patterns are searched for in the names of layers, "model.layers.0.self_attn.q_proj". ConfigError for a pattern that
/// matches no layer, for a layer in two groups, for one that is kept in codes or cut into tiles, and for groups that do
/// not divide one.
std::vector<RoundedWeight> rounded_weights(const WeightQuantization& quantization, const Model& model);
/// For each group what it does to which layers: lines for the user.
std::vector<std::string> describe_rounded_weights(const WeightQuantization& quantization, const Model& model);

class RoundedWeights {
 public:
  RoundedWeights(const Context& context, const Mesh& mesh, const WeightQuantization& quantization, const Model& model);

  /// After the Unit is leased for a pass: rounds its weights as the step after so many updates does. Calls nest.
  void begin_pass(size_t unit, const Residency& residency, int64_t updates);
  void end_pass(size_t unit);
  /// The flat buffer of a segment with the rounded weights, between the two; undefined where nothing is rounded.
  Tensor values(SegmentIndex at) const;

 private:
  struct State {
    std::vector<RoundedWeight> weights;
    std::vector<Tensor> segments;  // during a pass
    int passes = 0;
  };
  /// Rounds what this rank holds of a parameter, in place.
  void round(const RoundedWeight& weight, const WeightRounding& rounding, int64_t updates, const Tensor& held) const;
  /// Does so with all elements of it, f32.
  void round_whole(const RoundedWeight& weight, const WeightRounding& rounding, int64_t updates,
                   const Tensor& whole) const;

  Context context_;
  Mesh mesh_;
  WeightQuantization quantization_;
  const Model& model_;
  std::vector<State> states_;  // by Unit
};

}  // namespace nought
