// A rank's Context on the guarded device: the CPU kernels, as an accelerator would run them.
#pragma once

#include <string_view>
#include <vector>

#include "support/guarded_device.h"

#include "nought/kernels/kernels.h"

namespace nought::test {

/// What is done wrong on purpose.
enum class Fault : uint8_t {
  none,
  frees_early,   // work in flight does not keep its tensors
  other_stream,  // one operation goes to a stream of its own, and nobody waits for it
};

/// Submits a copy of each operation, with the addresses of kernels. DeviceError if an operand lies in the memory of
/// another rank or of the host, or if the stream is one of the host.
class GuardedKernels final : public Kernels {
 public:
  GuardedKernels(std::shared_ptr<Memory> memory, Fault fault) : memory_(std::move(memory)), fault_(fault) {}
  std::string_view name() const override { return "guarded"; }
#define NOUGHT_RUN(Op) \
  void run(const Op& op, Stream& stream) override { submit(op, stream); }
  NOUGHT_OPERATIONS(NOUGHT_RUN)
#undef NOUGHT_RUN

 private:
  template <class Op>
  void submit(const Op& op, Stream& stream) {
    if (stream.runs_inline()) {  // a transport adds what ranks sent: it is its turn, and it has the addresses
      for_each_operand(op, [&](const Operand& operand) {
        require<DeviceError>(operand.tensor.on_host(), "{}: {} lies on the device, and the stream is one of the host",
                             operation_name(op), operand.name);
      });
      return inner_->run(op, stream);
    }
    Op late = op;
    for_each_operand(late, [&](const Operand& operand) {
      const Tensor& tensor = operand.tensor;
      if (!tensor) return;
      require<DeviceError>(&tensor.buffer()->memory() == memory_.get(), "{}: {} lies in the memory of another rank",
                           operation_name(op), operand.name);
      require<DeviceError>(!tensor.on_host(), "{}: {} lies in the memory of the host", operation_name(op),
                           operand.name);
      const_cast<Tensor&>(tensor) = in_flight(tensor);  // `late` is not const
    });
    Stream& chosen = fault_ == Fault::other_stream && operation_name(op) == "RmsNorm" ? other_ : stream;
    chosen.submit([inner = inner_, late] {
      Stream here;
      inner->run(late, here);
    });
  }

  Tensor in_flight(const Tensor& tensor) {
    const Tensor held = tensor.in_flight();
    if (fault_ != Fault::frees_early) return held;
    const std::shared_ptr<void> nobody(held.raw(), [](void*) {});
    return {stray_->adopt(nobody, tensor.bytes(), Category::workspace), 0, tensor.shape(), tensor.dtype()};
  }

  std::shared_ptr<Memory> memory_;
  Fault fault_;
  std::shared_ptr<Kernels> inner_ = make_cpu_kernels();
  std::shared_ptr<Memory> stray_ = Memory::create();
  Stream other_{Stream::Kind::late, "other"};
};

inline Context guarded_context(Fault fault = Fault::none) {
  const GuardedMemory rank;
  rank.stream->submit(use_one_openmp_thread);
  return {rank.memory, std::make_shared<GuardedKernels>(rank.memory, fault), rank.stream};
}

/// How often the calling thread has waited for the streams of a guarded context's device.
inline int64_t host_waits(const Context& context) {
  return dynamic_cast<const GuardedDevice&>(context.memory->device()).waits();
}

/// One for each rank, on the guarded device or on the CPU.
inline std::vector<Context> contexts_of(int ranks, bool guarded, Fault fault = Fault::none) {
  std::vector<Context> contexts;
  for (int rank = 0; rank < ranks; ++rank) contexts.push_back(guarded ? guarded_context(fault) : Context::cpu());
  return contexts;
}

}  // namespace nought::test
