// Which layers of a model the groups of compression_training name.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "nought/nn/model.h"

namespace nought {

/// A group of different_groups.
struct NamedPatterns {
  std::string name;
  std::vector<std::string> modules;  // regular expressions that are searched for in the names of layers
};

/// A matrix or table of a model that one of the groups names.
struct ChosenLayer {
  size_t unit = 0, parameter = 0, group = 0;
};
/// In the order of the model. section: what messages call the groups. ConfigError for a pattern that matches no layer,
/// for a layer in two groups, and for one that is kept in codes or cut into tiles.
std::vector<ChosenLayer> layers_of_groups(const std::string& section, const std::vector<NamedPatterns>& groups,
                                          const Model& model);

/// "32 layers, model.layers.0.self_attn.q_proj to model.layers.7.self_attn.o_proj", for each group.
std::vector<std::string> describe_layers(const std::vector<ChosenLayer>& layers, size_t groups, const Model& model);

}  // namespace nought
