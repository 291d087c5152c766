// Tensors as values that can be compared.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nought/zero/sharded_model.h"

namespace nought::test {

/// Whole tensors by their names.
using WholeTensors = std::map<std::string, std::vector<float>>;

/// All parameters, whole, as every rank sees them. Collective.
inline WholeTensors whole_weights(ShardedModel& model) {
  WholeTensors all;
  for (size_t unit = 0; unit < model.model().units().size(); ++unit)
    model.with_parameters(unit, [&](const Parameter& parameter, const Tensor& whole) {
      all[parameter.name] = model.context().on_host(whole).to_vector<float>();
    });
  return all;
}

}  // namespace nought::test
