// What the library of products asks for on the emulated GPU: for predictions that are to be exact.
#pragma once

#include <memory>

#include "nought/cuda/backend/blas.h"
#include "nought/cuda/workspace.h"

namespace nought::test {

inline cuda::ProductWorkspace planned_products() {
  return [blas = std::make_shared<cuda::Blas>()](const MatMul& op) {
    const auto [m, n, k] = op.sizes();
    const bool adds_bias = op.bias && op.bias.dtype() == op.c.dtype() && op.c.dtype() != DType::f64;
    return static_cast<int64_t>(blas->workspace_of({.m = m,
                                                    .n = n,
                                                    .k = k,
                                                    .inputs = op.a.dtype(),
                                                    .output = op.c.dtype(),
                                                    .transpose_a = op.transpose_a,
                                                    .transpose_b = op.transpose_b,
                                                    .bias = adds_bias}));
  };
}

}  // namespace nought::test
