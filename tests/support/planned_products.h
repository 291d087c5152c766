// What the library of products asks for on the emulated GPU: for predictions that are to be exact.
#pragma once

#include <memory>

#include "nought/cuda/backend/blas.h"
#include "nought/cuda/backend/matmul_start.h"
#include "nought/cuda/workspace.h"

namespace nought::test {

inline cuda::ProductWorkspace planned_products() {
  return [blas = std::make_shared<cuda::Blas>()](const MatMul& op) {
    return static_cast<int64_t>(blas->workspace_of(cuda::product_of(op)));
  };
}

}  // namespace nought::test
