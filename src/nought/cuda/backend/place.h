// Where an operation runs on the device, and the workspace that it asks for. Each .cu file that computes operations of
// kernels/ops defines start() for them (operations.h): operands have the addresses of kernels, and have been checked.
#pragma once

#include <vector>

#include "nought/cuda/backend/launch.h"

namespace nought::cuda {

class Blas;

struct Place {
  Launch launch;
  Memory& memory;
  Blas& blas;  // products
  std::vector<Tensor> held = {};

  /// It goes back when the operation has been enqueued; its next holder comes later on the same stream.
  void* room(int64_t elements, DType dtype) {
    held.push_back(Tensor::empty(memory, {elements}, dtype, Category::workspace).in_flight());
    return held.back().raw();
  }
};

}  // namespace nought::cuda
