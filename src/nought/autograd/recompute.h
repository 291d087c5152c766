// SavedInputs: where the inputs of recomputed Units are kept between the passes.
#pragma once

#include <functional>
#include <vector>

#include "nought/autograd/recompute_options.h"
#include "nought/comm/communicator.h"
#include "nought/kernels/kernels.h"

namespace nought {

/// Keeps the inputs of recomputed Units from the forward to the backward pass; one per stack of Units, for all
/// micro-batches. What belongs to a micro-batch is held by what keep() returned.
class SavedInputs {
 public:
  /// ranks: those that have the same inputs; partitioned ones are gathered over them. null: this rank alone has them.
  explicit SavedInputs(const RecomputeOptions& options, Communicator* ranks = nullptr)
      : options_(options), ranks_(options.partitioned ? ranks : nullptr) {}

  /// Gives x back when it is called, on the device.
  using Kept = std::function<Tensor(const Context&)>;
  /// One forward pass.
  class Pass {
   public:
    Kept keep(const Context& context, const Tensor& x);

   private:
    friend class SavedInputs;
    explicit Pass(const SavedInputs& saved) : options_(saved.options_), ranks_(saved.ranks_) {}
    Tensor room_for(const Context& context, int64_t elements, DType dtype);

    RecomputeOptions options_;
    Communicator* ranks_;
    Tensor room_;  // [count, ...], if contiguous
    int64_t used_ = 0;
  };
  /// A forward pass begins that keeps `count` tensors like `x`.
  Pass begin(const Context& context, int64_t count, const Tensor& x);

 private:
  /// One that no pass uses and nothing kept lies in.
  Tensor free_room(const Context& context, int64_t elements, DType dtype);

  RecomputeOptions options_;
  Communicator* ranks_;        // null unless partitioned
  std::vector<Tensor> rooms_;  // if contiguous: as many as there were passes whose inputs were kept at one time
};

}  // namespace nought
