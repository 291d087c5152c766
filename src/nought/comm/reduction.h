// Reduction: combines tensors element by element, in the order given. Kernels compute sums; max and min are computed
// here.
#pragma once

#include <memory>
#include <vector>

#include "nought/comm/communicator.h"

namespace nought {

class Reduction {
 public:
  explicit Reduction(std::shared_ptr<Kernels> kernels) : kernels_(std::move(kernels)) {}

  /// out = inputs[0] op inputs[1] op ...; out may be one of the inputs. A NaN in any input gives a NaN.
  void run(std::vector<Tensor> inputs, const Tensor& out, ReduceOp op);

 private:
  std::shared_ptr<Kernels> kernels_;
  Stream inline_;  // runs the kernels on the calling communication thread
};

}  // namespace nought
