// A few small Units for tests of what shards them. Sizes are odd, so that the borders of shards cut through parameters.
#pragma once

#include <memory>
#include <vector>

#include "nought/autograd/unit.h"

namespace nought::test {

using Units = std::vector<std::unique_ptr<Unit>>;

/// "first" of 37 x 3 elements and 6, with room between them; "second" of 5, 7 x 9 and 11, which are joined; "third" of
/// one element.
inline Units small_units() {
  Units units;
  const auto add = [&](const char* name) -> Unit& { return *units.emplace_back(std::make_unique<Unit>(name)); };
  Unit& first = add("first");
  first.add("first.weight", {37, 3}, Init::normal(0.5));
  first.add("first.bias", {6}, Init::zeros(), ParameterRole::bias);
  Unit& second = add("second");
  const ParameterView norm = second.add("second.norm", {5}, Init::ones(), ParameterRole::norm);
  second.add("second.weight", {7, 9}, Init::normal(0.5));
  const ParameterView bias = second.add("second.bias", {11}, Init::zeros(), ParameterRole::bias);
  second.join(norm, bias, {5 + 7 * 9 + 11});
  add("third").add("third.scale", {1}, Init::ones());
  return units;
}

}  // namespace nought::test
