// Where an operation runs on the device, and the workspace that is planned for it (workspace.h). Each .cu file that
// computes operations of kernels/ops defines start() for them (operations.h): operands have the addresses of kernels,
// and have been checked.
#pragma once

#include <vector>

#include "nought/cuda/backend/launch.h"

namespace nought::cuda {

class Blas;

struct Place {
  Launch launch;
  Memory& memory;
  Blas& blas;                  // products
  std::vector<int64_t> rooms;  // bytes that workspace_of() lists
  std::vector<Tensor> held = {};

  /// The next of `rooms`. It goes back when the operation has been enqueued; its next holder comes later on the same
  /// stream.
  void* room() {
    require(held.size() < rooms.size(), "this operation takes more workspace than workspace_of() lists");
    held.push_back(Tensor::empty(memory, {rooms[held.size()]}, DType::u8, Category::workspace).in_flight());
    return held.back().raw();
  }
};

}  // namespace nought::cuda
