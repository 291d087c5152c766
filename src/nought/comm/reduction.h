// Reduction: combines tensors element by element in the order given; the sum is the kernels', max and min are here.
#pragma once

#include <memory>
#include <vector>

#include "nought/comm/communicator.h"

namespace nought {

class Reduction {
 public:
  explicit Reduction(std::shared_ptr<Kernels> kernels) : kernels_(std::move(kernels)) {}

  /// out = inputs[0] op inputs[1] op ...; out may be one of the inputs. A NaN in any input makes a NaN.
  void run(std::vector<Tensor> inputs, const Tensor& out, ReduceOp op);

 private:
  std::shared_ptr<Kernels> kernels_;
  Stream inline_;  // on the communication thread, not on the compute stream
};

/// Tells OpenMP that the calling thread works alone: ranks and communication threads share the cores with others.
void use_one_openmp_thread();

}  // namespace nought
