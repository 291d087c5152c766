// Each operation runs on copies of its operands, several times, and all runs must have the same bits.
//
// The runs differ in what results may not depend on: the order of threads and blocks, the number of blocks, and where
// operands lie: at a multiple of 256, or so that their last byte is the last of their memory. The emulated GPU has a
// page behind it that nobody may touch; a real one has its own order of threads.
#include "cuda/staged_kernels.h"

#include <bit>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#ifdef NOUGHT_CUDA_EMULATED
#include "cuda_emulation/control.h"
#endif

#include "nought/base/math.h"
#include "nought/cuda/backend/kernels.h"
#include "nought/kernels/check.h"

namespace nought::test {
namespace {

struct CudaRun {
  uint32_t order = 0;
  int64_t max_blocks = 0;
  bool at_the_end = false;  // operands end where their memory does
};
#ifdef NOUGHT_CUDA_EMULATED  // a hundred times as slow: all that may differ does so at once
constexpr CudaRun kCudaRuns[] = {{0, 1024, false}, {7, 3, true}};
#else
constexpr CudaRun kCudaRuns[] = {{0, 1024, false}, {1, 1, true}, {7, 3, true}};
#endif

class StagedKernels final : public Kernels {
 public:
  std::string_view name() const override { return "cuda"; }
#define NOUGHT_RUN(Op) \
  void run(const Op& op, Stream&) override { run_all(op); }
  NOUGHT_OPERATIONS(NOUGHT_RUN)
#undef NOUGHT_RUN

 private:
  using Bytes = std::vector<std::vector<std::byte>>;
  /// A mark, of which no arithmetic makes itself again: a large number in each float dtype but f16. Fresh memory is
  /// NaN, and stays that in sums.
  static constexpr std::byte kMark{0x7F};
  static constexpr int64_t kBehind = 64;  // bytes, or some more: a few vectors

  template <class Op>
  void run_all(const Op& op) {
    nought::check(op);  // values of ids too, which nobody reads on a device
    Bytes first;
    for (size_t i = 0; i < std::size(kCudaRuns); ++i) {
      const auto [results, on_host] = run_once(op, kCudaRuns[i], contexts_[i]);
      if (i == 0) first = results;
      require(results == first, "{}: run {} has other bits than the first", operation_name(op), i);
      if (on_host) break;  // its runs do not differ
    }
    size_t next = 0;
    for_each_operand(op, [&](const Operand& operand) {
      if (!operand.tensor || operand.use.role == Role::in) return;
      std::memcpy(operand.tensor.raw(), first[next].data(), first[next].size());
      ++next;
    });
  }

  template <class Op>
  std::pair<Bytes, bool> run_once(const Op& op, const CudaRun& run, const Context& context) {
#ifdef NOUGHT_CUDA_EMULATED
    emulation::set_order(run.order);
#endif
    Op there = op;
    std::map<const std::byte*, Tensor> placed;  // by where they begin: an operation may run in place
    std::vector<Tensor> written;
    for_each_operand(there, [&](const Operand& operand) {
      const Tensor own = operand.tensor;
      if (!own) return;
      Tensor& copied = placed[own.raw()];
      if (!copied) {
        copied = place(own, run.at_the_end, context);
        upload_bytes({own.raw(), static_cast<size_t>(own.bytes())}, copied, *context.stream);
      }
      const_cast<Tensor&>(operand.tensor) = copied.reshape(own.shape());  // `there` is not const
      if (operand.use.role != Role::in) written.push_back(copied);
    });
    auto& kernels = dynamic_cast<cuda::CudaKernels&>(*context.kernels);
    const int64_t before = kernels.runs_on_host();
    context.run(there);
    for (const auto& [own, copied] : placed) expect_nothing_behind(copied, context);
    Bytes results;
    for (const Tensor& tensor : written) results.push_back(download_bytes(tensor, *context.stream));
#ifdef NOUGHT_CUDA_EMULATED
    emulation::check_margins();
#endif
    return {results, kernels.runs_on_host() > before};
  }

  /// What lies in its block behind a tensor.
  static Tensor behind(const Tensor& tensor) {
    const int64_t end = tensor.raw() - tensor.buffer()->data() + tensor.bytes();
    return Tensor(tensor.buffer(), end, {tensor.buffer()->bytes() - end}, DType::u8);
  }
  /// It is as it was: a kernel that goes on to a whole vector is found.
  static void expect_nothing_behind(const Tensor& tensor, const Context& context) {
    const Tensor left = behind(tensor);
    if (left.numel() == 0) return;
    for (const std::byte byte : download_bytes(left, *context.stream))
      require<DeviceError>(byte == kMark, "a kernel writes behind {}", tensor);
  }

  /// A tensor like `own` on the device, with marks behind it or nothing.
  static Tensor place(const Tensor& own, bool at_the_end, const Context& context) {
    if (!at_the_end) {
      const Tensor block = context.empty({own.bytes() + kBehind}, DType::u8);
      const Tensor placed(block.buffer(), 0, own.shape(), own.dtype()), left = behind(placed);
      upload_bytes(std::vector<std::byte>(static_cast<size_t>(left.numel()), kMark), left, *context.stream);
      return placed;
    }
    // Blocks have these sizes, so that nothing lies behind what is taken of one.
    constexpr int64_t kLeastStep = 256;
    const auto step =
        static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(own.bytes(), 1)))) / 8;
    const int64_t bytes = round_up(std::max<int64_t>(own.bytes(), 1), std::max(step, kLeastStep));
    const Tensor block = context.empty({bytes}, DType::u8);
    return Tensor(block.buffer(), bytes - own.bytes(), own.shape(), own.dtype());
  }

  static Context make(const CudaRun& run) { return cuda::make_context({.max_blocks = run.max_blocks, .poison = true}); }
  static std::vector<Context> make_all() {
    std::vector<Context> contexts;
    for (const CudaRun& run : kCudaRuns) contexts.push_back(make(run));
    return contexts;
  }
  std::vector<Context> contexts_ = make_all();
};

}  // namespace

std::unique_ptr<Kernels> make_staged_kernels() { return std::make_unique<StagedKernels>(); }

}  // namespace nought::test
