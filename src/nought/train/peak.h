// MatrixPeak: the rate that MFU is a fraction of, and what products reach of it on CPUs that lack units for a dtype.
#pragma once

#include "nought/comm/communicator.h"

namespace nought {

/// FLOP/s of the register-only loop (kernels/limits.h) for a dtype, of all ranks together.
class MatrixPeak {
 public:
  /// All ranks measure at once. Collective.
  MatrixPeak(Communicator& ranks, const Context& context, DType dtype);

  double flops() const { return flops_; }
  /// What `reached` FLOP/s of all ranks are of the peak: 0 to 1. A shared machine may get faster. So where `reached`
  /// exceeds the peak, this rank measures its own share again, and the peak becomes at least `reached`.
  double share_of(double reached);

 private:
  DType dtype_;
  double own_, flops_;  // of this rank, of all ranks
};

/// FLOP/s of square products of 1024 on this rank, the best of several. All ranks should measure at the same time.
double measure_product_rate(const Context& context, DType dtype);

}  // namespace nought
