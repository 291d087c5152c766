// What the tests of attention know of the kernels under test: what they round on the way, and which of many cases are
// worth their time.
#pragma once

#include "support/kernel_backend.h"

#include "nought/kernels/cpu/attention.h"

namespace nought::test {

/// True if probabilities and the gradients of scores are rounded to the dtype before they are multiplied.
inline bool rounds_probabilities(const AttentionShape& shape, DType dtype) {
  if (tested_backend() == "cuda") return dtype == DType::bf16 || dtype == DType::f16;
  return cpu::takes_dots(shape, dtype);
}

/// True if the case of this number is to run: all of them, and one of `every` on an emulated GPU, which takes a hundred
/// times as long and runs each three times.
inline bool takes_case(int64_t number, int64_t every) { return !tested_choice().is_slow || number % every == 0; }

}  // namespace nought::test
