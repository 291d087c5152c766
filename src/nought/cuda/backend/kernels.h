// The kernels of CUDA behind the interface of Kernels, and the Context that has them.
//
// Operations that device code exists for run there. The others run on the host, on copies of their operands, by the
// reference: right, slow, and counted. No user runs that; it lets every operation be called on the device while they
// move there one by one.
#pragma once

#include <memory>

#include "nought/cuda/backend/blas.h"
#include "nought/cuda/backend/device.h"
#include "nought/kernels/kernels.h"

namespace nought::cuda {

struct CudaOptions {
  int device = 0;
  int64_t max_blocks = 0;    // of a kernel; 0: as many as keep the device busy. Results do not depend on it.
  bool synchronous = false;  // the host waits after every operation
  bool poison = false;       // fresh memory and what was given back is NaN
};

class CudaKernels final : public Kernels {
 public:
  /// Operands lie in `memory`, which is on a CudaDevice, and workspace is taken from it.
  CudaKernels(std::shared_ptr<Memory> memory, int64_t max_blocks, int64_t max_tiles);
  std::string_view name() const override { return "cuda"; }
#define NOUGHT_RUN(Op) void run(const Op& op, Stream& stream) override;
  NOUGHT_OPERATIONS(NOUGHT_RUN)
#undef NOUGHT_RUN

  /// How many operations ran on the host so far.
  int64_t runs_on_host() const { return runs_on_host_; }
  /// How often the host has waited for their operands.
  int64_t waits_for_operands() const { return waits_for_operands_; }

 private:
  std::shared_ptr<Memory> memory_;
  std::shared_ptr<Memory> host_ = Memory::create();
  std::unique_ptr<Kernels> reference_ = make_reference_kernels();
  Blas blas_;
  int64_t max_blocks_, max_tiles_, runs_on_host_ = 0, waits_for_operands_ = 0;

  template <class Op>
  void submit(const Op& op, Stream& stream);
  template <class Op>
  void run_on_host(const Op& op, Stream& stream);
};

/// A rank's context on a device of CUDA, with fresh memory. NOUGHT_CUDA_SYNCHRONOUS=1 sets `synchronous`.
Context make_context(const CudaOptions& options = {});
/// One on the device of this number, or on that of the rank of this number: ranks take turns if there are fewer.
Context context_of_gpu(int number, bool is_rank);

}  // namespace nought::cuda
