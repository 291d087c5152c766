// MatrixPeak: the peak rate of matrix products, of which MFU is a fraction; and the rate that real products reach.
#pragma once

#include <string>

#include "nought/comm/communicator.h"

namespace nought {

/// The peak of all ranks together for a dtype: FLOP/s of a loop that works in registers only (kernels/limits.h), the
/// best that this machine has ever shown, with a core for each thread as far as there are cores. 0, and so are shares
/// of it, where ranks compute on a device whose peak is not known.
class MatrixPeak {
 public:
  /// Measures on all ranks at once. kept: the file of the best peaks (measure/kept_peak.h); "": none. Collective.
  MatrixPeak(Communicator& ranks, const Context& context, DType dtype, const std::string& kept = "");

  double flops() const { return flops_; }
  /// This rank computes with so many.
  int threads() const { return threads_; }
  /// What to add to the name of the peak: that it is of another moment, or that other programs took the cores. Or "".
  const std::string& note() const { return note_; }
  /// `reached` FLOP/s of all ranks as a fraction of the peak: 0 to 1. A shared machine may become faster. So if
  /// `reached` exceeds the peak, this rank measures its own peak again, and the peak of all ranks becomes at least
  /// `reached`.
  double share_of(double reached);

 private:
  DType dtype_;
  int threads_ = 1;
  double own_ = 0, flops_ = 0;  // FLOP/s of this rank, and of all ranks
  std::string note_;
};

/// FLOP/s of a product of two 1024 x 1024 matrices on this rank, the best of several runs. Call it on all ranks at
/// once.
double measure_product_rate(const Context& context, DType dtype);
/// measure_product_rate() with so many threads, as it was first measured on this machine. kept: see MatrixPeak.
double kept_product_rate(const Context& context, DType dtype, int threads, const std::string& kept);
/// For a run in bf16 on a CPU without units for it: what products reach in bf16 and in fp32. That takes a fifth of a
/// second, and is measured once on a machine.
std::string note_of_slow_bf16(const Context& context, int threads, const std::string& kept);

}  // namespace nought
