// Tensors whose values count up: what was written where is seen at a glance.
#pragma once

#include <numeric>
#include <vector>

#include "nought/tensor/tensor.h"

namespace nought::test {

/// begin, begin + 1, ..., end - 1 in fp32.
inline Tensor counting(Memory& memory, int64_t begin, int64_t end) {
  std::vector<float> values(static_cast<size_t>(end - begin));
  std::iota(values.begin(), values.end(), static_cast<float>(begin));
  return Tensor::of<float>(memory, {end - begin}, values);
}

}  // namespace nought::test
