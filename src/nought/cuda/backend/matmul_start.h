// Products on the device. Operands have the addresses of kernels, and have been checked.
#pragma once

#include "nought/cuda/backend/blas.h"
#include "nought/cuda/backend/place.h"
#include "nought/kernels/ops/matmul.h"

namespace nought::cuda {

void start(const MatMul& op, Place& at);
/// False for what the library has no product for.
bool fits(const MatMul& op);
/// What the library is asked for; it adds a bias of the output's dtype alone.
BlasProduct product_of(const MatMul& op);

}  // namespace nought::cuda
