#include "nought/nn/quantized_weights.h"

#include "nought/nn/patterns.h"

namespace nought {

void keep_quantized(const std::vector<std::string>& patterns, Model& model) {
  const ParameterPatterns chosen(
      "8-bit codes", patterns, model,
      {can_be_quantized, "what is not kept quantized", "is neither a matrix of a product nor a table"});
  for (const auto& unit : model.units())
    unit->choose_quantized(
        [&](const Parameter& parameter) { return can_be_quantized(parameter.role) && chosen.match(parameter); });
}

}  // namespace nought
