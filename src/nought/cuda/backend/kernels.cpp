#include "nought/cuda/backend/kernels.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "nought/cuda/backend/attention_start.h"
#include "nought/cuda/backend/matmul_start.h"
#include "nought/cuda/backend/operations.h"
#include "nought/cuda/workspace.h"
#include "nought/kernels/check.h"

namespace nought::cuda {

namespace {

/// True if device code exists for the operation.
template <class Op>
concept HasKernel = requires(const Op& op, Place& at) {
  start(op, at);
};

/// True if this one does: its limits are kept.
using cuda::fits;
template <class Op>
bool fits(const Op& /*op*/) {
  return true;
}
bool fits(const SumTensors& op) { return std::ssize(op.inputs) <= (op.pairwise ? 2 : kMostInputs); }
bool fits(const Route& op) { return op.logits.dim(1) <= kMostExperts; }
bool fits(const RouteBackward& op) { return op.logits.dim(1) <= kMostExperts; }

}  // namespace

CudaKernels::CudaKernels(std::shared_ptr<Memory> memory, int64_t max_blocks, int64_t max_tiles)
    : memory_(std::move(memory)), max_blocks_(max_blocks), max_tiles_(max_tiles) {}

template <class Op>
void CudaKernels::submit(const Op& op, Stream& stream) {
  auto* const queue = dynamic_cast<CudaStream*>(&stream);
  require<DeviceError>(queue != nullptr, "{}: the stream is one of the host, expected one of the device {}",
                       operation_name(op), memory_->device().name());
  for_each_operand(op, [&](const Operand& operand) {
    require<DeviceError>(!operand.tensor || !operand.tensor.on_host(), "{}: {} lies in the memory of the host",
                         operation_name(op), operand.name);
  });
  if constexpr (HasKernel<Op>) {
    if (fits(op)) {
      nought::check(op);
      Op there = op;
      for_each_operand(there, [](const Operand& operand) {
        const_cast<Tensor&>(operand.tensor) = operand.tensor.in_flight();  // `there` is not const
      });
      const auto of_products = [&](const MatMul& product) {
        return static_cast<int64_t>(blas_.workspace_of(product_of(product)));
      };
      Place at{.launch = {queue->handle(), max_blocks_, max_tiles_},
               .memory = *memory_,
               .blas = blas_,
               .rooms = workspace_of(there, of_products)};
      return queue->enqueue(operation_name(op), [&] { start(there, at); });
    }
  }
  run_on_host(op, stream);
}

/// Operands that begin at the same address are one tensor in both places: an operation may run in place.
template <class Op>
void CudaKernels::run_on_host(const Op& op, Stream& stream) {
  ++runs_on_host_;
  std::map<const std::byte*, Tensor> longest;  // by where they begin
  for_each_operand(op, [&](const Operand& operand) {
    if (!operand.tensor) return;
    Tensor& known = longest[operand.tensor.raw()];
    if (!known || known.bytes() < operand.tensor.bytes()) known = operand.tensor;
  });
  std::map<const std::byte*, Tensor> copies;
  for (const auto& [begin, tensor] : longest) {
    copies[begin] = Tensor::empty(*host_, {tensor.bytes()}, DType::u8, Category::workspace);
    if (tensor.bytes() > 0) ++waits_for_operands_;
    const std::vector<std::byte> bytes = download_bytes(tensor, stream);
    std::copy(bytes.begin(), bytes.end(), copies[begin].raw());
  }
  Op here = op;
  std::vector<std::pair<Tensor, Tensor>> results;
  for_each_operand(here, [&](const Operand& operand) {
    const Tensor own = operand.tensor;
    if (!own) return;
    const Tensor& copied = copies[own.raw()];
    const_cast<Tensor&>(operand.tensor) = Tensor(copied.buffer(), 0, own.shape(), own.dtype());  // `here` is not const
    if (operand.use.role != Role::in) results.emplace_back(own, operand.tensor);
  });
  Stream at_once;
  reference_->run(here, at_once);
  for (const auto& [own, computed] : results)
    upload_bytes({computed.raw(), static_cast<size_t>(computed.bytes())}, own, stream);
}

#define NOUGHT_RUN(Op) \
  void CudaKernels::run(const Op& op, Stream& stream) { submit(op, stream); }
NOUGHT_OPERATIONS(NOUGHT_RUN)
#undef NOUGHT_RUN

Context make_context(const CudaOptions& options) {
  constexpr int64_t kBlocksEach = 8;  // of kThreads threads on a multiprocessor
  const auto device = std::make_shared<CudaDevice>(options.device, options.poison);
  const auto stream = device->make_compute();
  const char* const wish = std::getenv("NOUGHT_CUDA_SYNCHRONOUS");
  stream->set_synchronous(options.synchronous || (wish != nullptr && std::string_view(wish) == "1"));
  const auto memory = Memory::create(device);
  const int64_t blocks = options.max_blocks > 0 ? options.max_blocks : kBlocksEach * device->multiprocessors();
  const int64_t tiles = options.max_blocks > 0 ? options.max_blocks : Launch{}.max_tiles;
  return {memory, std::make_shared<CudaKernels>(memory, blocks, tiles), stream};
}

Context context_of_gpu(int number, bool is_rank) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) cudaGetLastError();  // make_context() says why
  return make_context({.device = is_rank && devices > 0 ? number % devices : number});
}

}  // namespace nought::cuda
