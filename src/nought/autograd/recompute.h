// SavedInputs: where the inputs of recomputed Units are kept between the passes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nought/autograd/input_files.h"
#include "nought/autograd/recompute_options.h"
#include "nought/comm/communicator.h"
#include "nought/kernels/kernels.h"

namespace nought {

/// Keeps the inputs of recomputed Units from the forward to the backward pass; one per stack of Units, for all
/// micro-batches. What belongs to a micro-batch is held by what keep() returned.
class SavedInputs {
 public:
  /// ranks: those that have the same inputs; partitioned ones are gathered over them. null: this rank alone has them.
  /// owner: the name of this rank in messages about its files.
  explicit SavedInputs(const RecomputeOptions& options, Communicator* ranks = nullptr, std::string owner = "this rank")
      : options_(options), ranks_(options.partitioned ? ranks : nullptr), owner_(std::move(owner)) {}

  /// Gives x back when it is called, on the device.
  using Kept = std::function<Tensor(const Context&)>;
  /// One forward pass.
  class Pass {
   public:
    Kept keep(const Context& context, const Tensor& x);

   private:
    friend class SavedInputs;
    explicit Pass(const SavedInputs& saved)
        : options_(saved.options_), ranks_(saved.ranks_), returning_(saved.returning_), files_(saved.files_) {}
    Tensor room_for(const Context& context, int64_t elements, DType dtype);
    Kept keep_in_file(const Context& context, const Tensor& x);

    RecomputeOptions options_;
    Communicator* ranks_;
    std::shared_ptr<UnderWay> returning_;
    Tensor room_;  // [count, ...], if contiguous
    int64_t used_ = 0;
    std::shared_ptr<InputFiles> files_;  // null unless they are in files, and
    std::shared_ptr<InputFiles::Room> in_file_;
  };
  /// A forward pass begins that keeps `count` tensors like `x`.
  Pass begin(const Context& context, int64_t count, const Tensor& x);
  /// What went to files and came from them so far.
  SwapTraffic file_traffic() const { return files_ ? files_->traffic() : SwapTraffic{}; }

 private:
  /// One that no pass uses and nothing kept lies in.
  Tensor free_room(const Context& context, int64_t elements, DType dtype);

  RecomputeOptions options_;
  Communicator* ranks_;  // null unless partitioned
  std::string owner_;
  /// From the host to a device, behind which the host runs ahead.
  std::shared_ptr<UnderWay> returning_ = std::make_shared<UnderWay>();
  std::vector<Tensor> rooms_;          // if contiguous: as many as there were passes whose inputs were kept at one time
  std::shared_ptr<InputFiles> files_;  // if they are in files: from the first pass on
};

}  // namespace nought
