#include <string_view>

#include "nought/kernels/check.h"

namespace nought {

void check_shapes(const CustomUpdate& op) {
  const int64_t numel = op.parameter.numel();
  const auto expect = [&](std::string_view name, const Tensor& tensor, bool fits, std::string_view dtypes) {
    require<ShapeError>(fits && tensor.numel() == numel, "CustomUpdate: {} is {}, expected {} elements of {}", name,
                        tensor, numel, dtypes);
  };
  expect("parameter", op.parameter, op.parameter.dtype() == DType::f32, "f32");
  for (const Tensor& state : op.states) expect("states", state, state.dtype() == DType::f32, "f32");
  expect("gradient", op.gradient, is_float(op.gradient.dtype()), "a floating-point dtype");
  if (op.parameter_copy)
    expect("parameter_copy", op.parameter_copy, is_float(op.parameter_copy.dtype()), "a floating-point dtype");
  require<ShapeError>(op.states.size() <= CustomUpdate::kMostStates, "CustomUpdate: {} states, expected at most {}",
                      op.states.size(), CustomUpdate::kMostStates);
  require(op.rule.update != nullptr, "CustomUpdate: there is no rule");
}

}  // namespace nought
