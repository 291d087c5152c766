// The matrices and tables that compression_training.weight_quantization rounds, and how a step rounds them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nought/compress/weight_quantization.h"
#include "nought/nn/model.h"
#include "nought/zero/weight_change.h"

namespace nought {

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

/// Rounds the weights of one of the groups, in so many groups of neighbours.
std::shared_ptr<const WeightChange> rounding_of(const WeightQuantization& quantization, const RoundedWeight& weight);

}  // namespace nought
