// rules_for(): what an optimizer does with each trained parameter of a Unit.
#pragma once

#include <vector>

#include "nought/autograd/unit.h"
#include "nought/optim/optimizer.h"

namespace nought::test {

/// The rules of the parameters of a Unit that are trained, in order.
inline std::vector<ParameterRule> rules_for(const OptimizerOptions& options, const Unit& unit) {
  std::vector<ParameterRule> rules;
  for (const Parameter& parameter : unit.parameters())
    if (parameter.trainable) rules.push_back(rule_for(options, parameter));
  return rules;
}

}  // namespace nought::test
