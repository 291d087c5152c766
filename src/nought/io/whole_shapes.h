// WholeShapes: the shapes of a model's tensors, for readers of files in which ranks have slices of them.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "nought/tensor/shape.h"

namespace nought {

/// The whole shape of a tensor by its name, as the model has it; not given where the model has none of that name.
using WholeShapes = std::function<std::optional<Shape>(std::string_view name)>;

}  // namespace nought
