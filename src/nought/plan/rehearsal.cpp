#include "nought/plan/rehearsal.h"

#include "nought/comm/buffer_sizes.h"
#include "nought/comm/stream_communicator.h"
#include "nought/kernels/work.h"

namespace nought {

namespace {

class CountingKernels final : public Kernels {
 public:
  explicit CountingKernels(CountedWork& work) : work_(work) {}
  std::string_view name() const override { return "counting"; }
#define NOUGHT_RUN(Op) \
  void run(const Op& op, Stream&) override { count(op); }
  NOUGHT_OPERATIONS(NOUGHT_RUN)
#undef NOUGHT_RUN

 private:
  template <class Op>
  void count(const Op& op) {
    const Work work = work_of(op);
    constexpr bool updates = requires { op.parameter; }
    || requires { op.momentum_buffer; };
    work_.flops += work.flops;
    if (work.flops == 0) (updates ? work_.update_bytes : work_.bytes) += work.bytes;
    if constexpr (requires { op.rehearse(); }) op.rehearse();
  }

  CountedWork& work_;
};

class SilentTransport final : public Transport {
 public:
  SilentTransport(const Context& context, int rank, int size, Wire wire) : context_(context), rank_(rank), size_(size) {
    if (wire == Wire::mpi)
      shared_windows_ = context.empty({all_shared_windows_bytes(size)}, DType::u8, Category::communication);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view backend() const override { return "silent"; }

  void broadcast(const Call&, const Tensor&, int) override {}
  void reduce(const Call&, const Tensor&, const Tensor&, int, ReduceOp) override {}
  void all_reduce(const Call&, const Tensor&, ReduceOp) override {}
  void gather(const Call&, const Tensor&, const Tensor&, int) override {}
  void all_gather(const Call&, const Tensor&, const Tensor&) override {}
  void scatter(const Call&, const Tensor&, const Tensor&, int) override {}
  void reduce_scatter(const Call&, const Tensor&, const Tensor&, ReduceOp) override {}
  void all_to_all(const Call&, const Tensor&, const Tensor&) override {}
  void all_to_all_v(const Call&, const Tensor&, const Tensor&, const RowCounts&) override {}
  void send(const Call&, const Tensor& tensor, int, int) override {
    context_.empty(tensor.shape(), tensor.dtype(), Category::communication);
  }
  Posted post(const Call&, const Tensor&, int, int) override {
    return [](const Call&) {};
  }
  void recv(const Call&, const Tensor&, int, int) override {}
  void barrier(const Call&) override {}
  std::unique_ptr<Transport> split(const Call& call, int, int) override {
    fail<CommError>("{}: ranks that are not there cannot say which group they join", call.str());
  }
  void cancel() override {}

 private:
  Context context_;
  int rank_, size_;
  Tensor shared_windows_;
};

}  // namespace

std::unique_ptr<Kernels> make_counting_kernels(CountedWork& work) { return std::make_unique<CountingKernels>(work); }

std::unique_ptr<Communicator> make_silent_communicator(const Context& context, int rank, int size, Wire wire) {
  if (size == 1) return make_self_communicator();
  return std::make_unique<StreamCommunicator>(std::make_unique<SilentTransport>(context, rank, size, wire),
                                              std::make_shared<Stream>());
}

}  // namespace nought
