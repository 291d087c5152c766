#include "nought/plan/dry_run.h"

#include <algorithm>
#include <concepts>
#include <utility>
#include <vector>

#include "nought/comm/staged.h"
#include "nought/comm/stream_communicator.h"
#include "nought/kernels/work.h"
#include "nought/measure/operation_times.h"

namespace nought {

namespace {

class CountingKernels final : public Kernels {
 public:
  CountingKernels(CountedWork& work, ChosenExperts routing, cuda::ProductWorkspace products, OperationTimes* times)
      : work_(work), routing_(routing), products_(std::move(products)), times_(times) {}
  std::string_view name() const override { return "counting"; }
#define NOUGHT_RUN(Op) \
  void run(const Op& op, Stream& stream) override { count(op, stream); }
  NOUGHT_OPERATIONS(NOUGHT_RUN)
#undef NOUGHT_RUN

 private:
  template <class Op>
  void count(const Op& op, const Stream& stream) {
    const Work work = work_of(op);
    constexpr bool updates = is_update<Op>();
    if (products_ && stream.runs_inline()) {
      work_.host_bytes += work.bytes;
      return write_for_host(op);
    }
    work_.flops += work.flops;
    if constexpr (std::same_as<Op, Attention> || std::same_as<Op, AttentionBackward>)
      work_.attention_flops += work.flops;
    (work.flops > 0 ? work_.product_bytes : updates ? work_.update_bytes : work_.bytes) += work.bytes;
    work_.operations += 1;
    if (times_)
      (work.flops > 0 ? work_.product_seconds
       : updates      ? work_.update_seconds
                      : work_.other_seconds) += times_->seconds(op);
    products_ ? run_on_gpu(op) : write_for_host(op);
  }

  template <class Op>
  void write_for_host(const Op& op) const {
    if constexpr (std::same_as<Op, GroupByExpert>) {
      if (!routing_.even()) return favour(op);
    }
    if constexpr (requires { op.dry_run(); }) op.dry_run();
  }

  /// Each token chooses different experts: as many of the favoured rank's as it can, and others for the rest.
  void favour(const GroupByExpert& op) const {
    const int64_t top_k = op.row.dim(-1), tokens = op.row.numel() / top_k, experts = op.counts.numel();
    const int64_t held = experts / routing_.ranks, first = routing_.favoured * held, here = std::min(top_k, held);
    for (int64_t e = 0; e < experts; ++e) {
      const bool favoured = first <= e && e < first + held;
      const int64_t rows = tokens * (favoured ? here : top_k - here), sharers = favoured ? held : experts - held;
      const int64_t place = favoured ? e - first : (e < first ? e : e - held);
      op.counts.data<int32_t>()[e] = static_cast<int32_t>(rows / sharers + (place < rows % sharers ? 1 : 0));
    }
  }

  template <class Op>
  void run_on_gpu(const Op& op) const {
    Op there = op;
    Memory* memory = nullptr;
    for_each_operand(there, [&](const Operand& operand) {
      if (!operand.tensor) return;
      require<DeviceError>(!operand.tensor.on_host(), "{}: {} lies in the memory of the host", operation_name(op),
                           operand.name);
      memory = &operand.tensor.buffer()->memory();
      const_cast<Tensor&>(operand.tensor) = operand.tensor.in_flight();  // `there` is not const
    });
    std::vector<Tensor> rooms;
    for (const int64_t bytes : cuda::workspace_of(there, products_))
      rooms.push_back(Tensor::empty(*memory, {bytes}, DType::u8, Category::workspace));
    write_for_host(there);
  }

  CountedWork& work_;
  ChosenExperts routing_;
  cuda::ProductWorkspace products_;  // null: not on a GPU
  OperationTimes* times_;
};

class SilentTransport final : public Transport {
 public:
  SilentTransport(const Context& context, int rank, int size, Wire wire, const RanksOnHosts& hosts)
      : context_(context), rank_(rank), size_(size), hosts_(hosts) {
    if (wire != Wire::mpi || !context.memory->device().is_host()) return;
    remote_peers_ = size - hosts.here;
    if (hosts.here > 1)
      shared_windows_ = context.empty({all_shared_windows_bytes(hosts.here)}, DType::u8, Category::communication);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view backend() const override { return "silent"; }

  void run(const Call&, const Collective& collective) override {
    if (collective.reduces()) receive_segments(collective.input().dtype(), collective.input().numel());
  }
  std::unique_ptr<Transport> split(const Call& call, int, int) override {
    fail<CommError>("{}: ranks that are not there cannot say which group they join", call.str());
  }
  void cancel() override {}

 private:
  /// The buffers in which a reduction of so many elements receives what ranks of other hosts send.
  void receive_segments(DType dtype, int64_t elements) const {
    const int64_t length = std::min(reduction_segment(dtype, size_, hosts_.most - 1, shared_slot_bytes(hosts_.most)),
                                    part_of(elements, rank_, size_).size());
    std::vector<Tensor> buffers;
    for (int i = 0; i < kReductionSlots * remote_peers_; ++i)
      buffers.push_back(context_.empty({length}, dtype, Category::communication));
  }

  Context context_;
  int rank_, size_;
  RanksOnHosts hosts_;
  int remote_peers_ = 0;  // on other hosts, where that takes memory
  Tensor shared_windows_;
};

}  // namespace

std::unique_ptr<Kernels> make_counting_kernels(CountedWork& work, ChosenExperts routing,
                                               cuda::ProductWorkspace products, OperationTimes* times) {
  return std::make_unique<CountingKernels>(work, routing, std::move(products), times);
}

std::unique_ptr<Communicator> make_silent_communicator(const Context& context, int rank, int size, Wire wire,
                                                       const std::optional<RanksOnHosts>& hosts) {
  if (size == 1) return make_self_communicator();
  const RanksOnHosts on_hosts = hosts.value_or(RanksOnHosts{.here = size, .most = size});
  // What a transport beneath staging allocates is in the ledger of nobody.
  const Context beneath = needs_staging(context) ? Context{Memory::create_virtual(), context.kernels} : context;
  return std::make_unique<StreamCommunicator>(
      staged(std::make_unique<SilentTransport>(beneath, rank, size, wire, on_hosts), context),
      std::make_shared<Stream>());
}

}  // namespace nought
