// Copies and clears tensors that host code may touch, at once.
#pragma once

#include "nought/tensor/tensor.h"

namespace nought::test {

inline void copy(const Tensor& from, const Tensor& to) {
  Stream here;
  nought::copy(from, to, here);
}

inline void zero(const Tensor& tensor) {
  Stream here;
  nought::zero(tensor, here);
}

}  // namespace nought::test
