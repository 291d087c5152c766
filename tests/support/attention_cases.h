// What the tests of attention know of the kernels under test: what they round on the way.
#pragma once

#include "support/kernel_backend.h"

#include "nought/kernels/cpu/attention.h"

namespace nought::test {

/// True if probabilities and the gradients of scores are rounded to the dtype before they are multiplied.
inline bool rounds_probabilities(const AttentionShape& shape, DType dtype) {
  if (tested_backend() == "cuda") return dtype == DType::bf16 || dtype == DType::f16;
  return cpu::takes_dots(shape, dtype);
}

}  // namespace nought::test
