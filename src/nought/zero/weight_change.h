// WeightChange: what a step makes of a weight before it computes with it, such as rounding it to few bits.
//
// The gradient that a pass forms is then that of the stored weight: a straight-through gradient needs nothing else.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "nought/autograd/unit.h"
#include "nought/kernels/kernels.h"

namespace nought {

class WeightChange {
 public:
  virtual ~WeightChange() = default;
  /// Updates before the first step that does anything.
  virtual int64_t start() const = 0;
  /// What of a parameter it must see at once.
  enum class Scope : uint8_t {
    all,     // all of it, flat
    matrix,  // all of it, [rows, columns]
    rows,    // whole rows, [rows, columns]
    values   // what this rank holds, flat
  };
  virtual Scope scope() const { return Scope::all; }
  /// Changes elements of a parameter in place, for the step after so many updates. values: in the dtype of the run.
  virtual void apply(const Context& context, const Parameter& parameter, int64_t updates,
                     const Tensor& values) const = 0;
};

/// A parameter of a model that steps change.
struct ChangedWeight {
  size_t unit = 0, parameter = 0;
  std::shared_ptr<const WeightChange> change = {};
};

/// The name of the layer whose weight it is, as Hugging Face's modules are named.
inline std::string layer_of(const Parameter& parameter) {
  constexpr std::string_view kWeight = ".weight";
  std::string name = parameter.name;
  if (name.ends_with(kWeight)) name.resize(name.size() - kWeight.size());
  return name;
}

}  // namespace nought
