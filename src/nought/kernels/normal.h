// Fills tensors with normal values, which parameters start with. The bits are those of asking for each value alone.
#pragma once

#include "nought/tensor/tensor.h"

namespace nought {

/// x[i] = std * normal_at(key, first + i) (tensor/random.h), rounded to fp32 and then to x's float dtype, on the
/// calling thread's OpenMP team.
void fill_normal(const Tensor& x, uint64_t key, int64_t first, double std);

}  // namespace nought
