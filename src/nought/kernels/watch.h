// Kernels that hand the results of every operation to a watcher: to find where a value first went wrong.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "nought/kernels/kernels.h"

namespace nought {

/// "AttentionBackward", "dq", and the values: a part of a wider row comes as one tensor per token.
using Watcher = std::function<void(std::string_view operation, std::string_view result, const Tensor& values)>;

/// Runs `inner`, then `watcher` for each floating-point tensor that the operation wrote, in the order of its visit().
/// Tensors in which infinity is a proper result are left out.
std::unique_ptr<Kernels> make_watching_kernels(std::shared_ptr<Kernels> inner, Watcher watcher);

}  // namespace nought
