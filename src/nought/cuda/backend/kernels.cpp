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
#include "nought/kernels/check.h"

namespace nought::cuda {

namespace {

int64_t last_of(const Tensor& x) { return x.dim(-1); }

// One overload for each operation that device code exists for, here or in other files. Operands have the addresses of
// kernels.

void start(const Add& op, Place& at) {
  add(at.launch, array_of(op.a), array_of(op.b), array_of(op.out), op.out.numel());
}
void start(const Scale& op, Place& at) {
  scale(at.launch, array_of(op.x), array_of(op.squares), op.factor, op.eps, op.x.numel());
}
void start(const Fill& op, Place& at) { fill(at.launch, array_of(op.x), op.value, op.x.numel()); }
void start(const Cast& op, Place& at) { cast(at.launch, array_of(op.x), array_of(op.y), op.x.numel()); }
void start(const AddTo& op, Place& at) { add_to(at.launch, array_of(op.x), array_of(op.into), op.x.numel()); }

void start(const RoundStochastic& op, Place& at) {
  round_stochastic(at.launch, array_of(op.x), array_of(op.y), op.key, op.first, op.x.numel());
}
void start(const RoundFp8& op, Place& at) {
  round_fp8(at.launch, array_of(op.x), array_of(op.y), array_of(op.largest), op.format, op.scale, op.margin,
            op.x.numel());
}

void start(const SumTensors& op, Place& at) {
  std::vector<Array> inputs;
  for (const Tensor& input : op.inputs) inputs.push_back(array_of(input));
  sum_tensors(at.launch, inputs, array_of(op.out), op.out.numel());
}
void start(const SumElements& op, Place& at) {
  sum_elements(at.launch, array_of(op.x), array_of(op.out), op.x.numel());
}
void start(const SumSquares& op, Place& at) {
  auto* const room = static_cast<double*>(at.room(room_of_sum_squares(op.x.numel()), DType::f64));
  sum_squares(at.launch, array_of(op.x), array_of(op.out), room, op.x.numel());
}
void start(const AbsMax& op, Place& at) {
  abs_max(at.launch, array_of(op.x), array_of(op.out), op.accumulate, op.x.numel());
}
void start(const SumRows& op, Place& at) {
  const int64_t rows = op.x.rows(), n = last_of(op.x);
  sum_rows(at.launch, array_of(op.x), array_of(op.out), op.accumulate,
           at.room(room_of_columns(rows, n), statistics_dtype(op.x.dtype())), rows, n);
}

void start(const RmsNorm& op, Place& at) {
  rms_norm(at.launch,
           {.x = array_of(op.x),
            .weight = array_of(op.weight),
            .squares = array_of(op.squares),
            .y = array_of(op.y),
            .rstd = array_of(op.rstd),
            .eps = op.eps,
            .weight_offset = op.weight_offset,
            .width = op.width},
           {op.x.rows(), last_of(op.x)});
}
void start(const RmsNormBackward& op, Place& at) {
  const NormRows size{op.x.rows(), last_of(op.x)};
  rms_norm_backward(at.launch,
                    {.x = array_of(op.x),
                     .weight = array_of(op.weight),
                     .rstd = array_of(op.rstd),
                     .dy = array_of(op.dy),
                     .products = array_of(op.products),
                     .dx = array_of(op.dx),
                     .d_weight = array_of(op.d_weight),
                     .weight_offset = op.weight_offset,
                     .accumulate_x = op.accumulate_x,
                     .accumulate_weight = op.accumulate_weight,
                     .width = op.width},
                    at.room(room_of_columns(size.rows, size.n), statistics_dtype(op.x.dtype())), size);
}
void start(const LayerNorm& op, Place& at) {
  layer_norm(at.launch,
             {.x = array_of(op.x),
              .weight = array_of(op.weight),
              .bias = array_of(op.bias),
              .y = array_of(op.y),
              .mean = array_of(op.mean),
              .rstd = array_of(op.rstd),
              .eps = op.eps},
             {op.x.rows(), last_of(op.x)});
}
void start(const LayerNormBackward& op, Place& at) {
  const NormRows size{op.x.rows(), last_of(op.x)};
  layer_norm_backward(at.launch,
                      {.x = array_of(op.x),
                       .weight = array_of(op.weight),
                       .mean = array_of(op.mean),
                       .rstd = array_of(op.rstd),
                       .dy = array_of(op.dy),
                       .dx = array_of(op.dx),
                       .d_weight = array_of(op.d_weight),
                       .d_bias = array_of(op.d_bias),
                       .accumulate_x = op.accumulate_x,
                       .accumulate_weight = op.accumulate_weight},
                      at.room(room_of_columns(size.rows, size.n), statistics_dtype(op.x.dtype())), size);
}

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
bool fits(const SumTensors& op) { return op.inputs.size() <= kMostInputs; }
bool fits(const Route& op) { return op.logits.dim(1) <= kMostExperts; }
bool fits(const RouteBackward& op) { return op.logits.dim(1) <= kMostExperts; }

}  // namespace

CudaKernels::CudaKernels(std::shared_ptr<Memory> memory, int64_t max_blocks)
    : memory_(std::move(memory)), max_blocks_(max_blocks) {}

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
      Place at{.launch = {queue->handle(), max_blocks_}, .memory = *memory_, .blas = blas_};
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
  return {memory, std::make_shared<CudaKernels>(memory, blocks), stream};
}

Context context_of_gpu(int number, bool is_rank) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) cudaGetLastError();  // make_context() says why
  return make_context({.device = is_rank && devices > 0 ? number % devices : number});
}

}  // namespace nought::cuda
