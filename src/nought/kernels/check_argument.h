// What checks of operations ask of one argument. ShapeError names the operation and the argument.
#pragma once

#include <cstdint>
#include <string_view>

#include "nought/tensor/tensor.h"

namespace nought {

/// An argument of an operation and the names to blame it by.
struct Argument {
  std::string_view op, name;
  const Tensor& tensor;
};

void check_float(const Argument& a);
void check_dtype(const Argument& a, DType dtype);
void check_size(const Argument& a, int64_t numel);
void check_tensor(const Argument& a, DType dtype, int64_t numel);
/// Same dtype and number of elements as `model`.
void check_like(const Argument& a, const Tensor& model);

}  // namespace nought
