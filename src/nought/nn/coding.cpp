#include "nought/nn/coding.h"

#include "nought/nn/patterns.h"

namespace nought {

void keep_as_codes(const std::vector<std::string>& patterns, Model& model) {
  const ParameterPatterns chosen(
      "8-bit codes", patterns, model,
      {can_be_coded, "what is not kept as codes", "is neither a matrix of a product nor a table"});
  for (const auto& unit : model.units())
    unit->choose_coded(
        [&](const Parameter& parameter) { return can_be_coded(parameter.role) && chosen.match(parameter); });
}

}  // namespace nought
