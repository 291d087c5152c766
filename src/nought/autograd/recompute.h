// SavedInputs: where the inputs of recomputed Units are kept between the passes.
#pragma once

#include <functional>

#include "nought/autograd/recompute_options.h"
#include "nought/kernels/kernels.h"

namespace nought {

/// Keeps the inputs of recomputed Units from the forward to the backward pass; one per stack of Units, for all steps.
class SavedInputs {
 public:
  explicit SavedInputs(const RecomputeOptions& options) : options_(options) {}

  /// A forward pass begins that keeps `count` tensors like `x`; those of the last one are not needed any more.
  void begin(const Context& context, int64_t count, const Tensor& x);
  /// Gives x back when it is called, on the device.
  using Kept = std::function<Tensor(const Context&)>;
  Kept keep(const Context& context, const Tensor& x);

 private:
  RecomputeOptions options_;
  Tensor room_;  // [count, ...], if contiguous
  int64_t used_ = 0;
};

}  // namespace nought
