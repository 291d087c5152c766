// MatrixPeak: the peak rate of matrix products, of which MFU is a fraction; and the rate that real products reach.
#pragma once

#include "nought/comm/communicator.h"

namespace nought {

/// The peak of all ranks together for a dtype: FLOP/s of a loop that works in registers only (kernels/limits.h). 0, and
/// so are shares of it, where ranks compute on a device whose peak is not known.
class MatrixPeak {
 public:
  /// Measures on all ranks at once. Collective.
  MatrixPeak(Communicator& ranks, const Context& context, DType dtype);

  double flops() const { return flops_; }
  /// `reached` FLOP/s of all ranks as a fraction of the peak: 0 to 1. A shared machine may become faster. So if
  /// `reached` exceeds the peak, this rank measures its own peak again, and the peak of all ranks becomes at least
  /// `reached`.
  double share_of(double reached);

 private:
  DType dtype_;
  double own_, flops_;  // FLOP/s of this rank, and of all ranks
};

/// FLOP/s of a product of two 1024 x 1024 matrices on this rank, the best of several runs. Call it on all ranks at
/// once.
double measure_product_rate(const Context& context, DType dtype);

}  // namespace nought
