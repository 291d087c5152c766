// Where messages and chunks of several calls meet, between processes: test_comm_mpi_seams [windows=0], started by
// mpirun. Prints one line that begins with "ok" on rank 0, and leaves with 0, when all is well.
#include <cstdio>
#include <cstring>
#include <string_view>
#include <thread>

#include "support/rank_values.h"

#include "nought/comm/mpi.h"

namespace nought {
namespace {

using namespace test;

/// Kernels whose sums take long: a chunk of a peer that is overwritten meanwhile was given back too early.
class SlowSums final : public Kernels {
 public:
  std::string_view name() const override { return inner_->name(); }
#define NOUGHT_RUN(Op) \
  void run(const Op& op, Stream& stream) override { wait_for(op), inner_->run(op, stream); }
  NOUGHT_OPERATIONS(NOUGHT_RUN)
#undef NOUGHT_RUN

  std::chrono::milliseconds delay{0};

 private:
  template <class Op>
  void wait_for(const Op&) {}
  void wait_for(const SumTensors& op) {
    if (delay.count() == 0) return;
    std::vector<std::vector<std::byte>> before;
    for (const Tensor& input : op.inputs) before.emplace_back(input.raw(), input.raw() + input.bytes());
    std::this_thread::sleep_for(delay);
    for (size_t i = 0; i < before.size(); ++i)
      require(std::memcmp(before[i].data(), op.inputs[i].raw(), before[i].size()) == 0,
              "what rank {} sent was overwritten before it was added", i);
  }

  std::shared_ptr<Kernels> inner_ = make_cpu_kernels();
};

/// Nothing tells a rank that a peer has gone as far as it can, so the reader gives it time. A right program passes
/// however slow the machine is; time decides only how surely a wrong one is caught.
///
/// The last rank adds slowly what the first has sent, and the first goes on with a broadcast that fills its window
/// several times.
void check_slow_reader(Communicator& group, const Context& context, SlowSums& kernels) {
  constexpr int64_t kPart = 1000, kLong = 4 << 20;
  const int rank = group.rank(), size = group.size();
  const Tensor full = tensor_of(context, values_of<float>(rank, kPart * size)),
               shard = context.zeros({kPart}, DType::f32);
  const Tensor whole = tensor_of(context, values_of<float>(rank, kLong));
  group.barrier().wait();
  if (rank == size - 1) kernels.delay = std::chrono::milliseconds(300);
  const Event sum = group.reduce_scatter(full, shard), news = group.broadcast(whole, 0);
  sum.wait(), news.wait();
  kernels.delay = std::chrono::milliseconds(0);
  expect_same("reduce_scatter of a slow reader", shard,
              part_of(reduced_of<float>(all_ranks(size), kPart * size, ReduceOp::sum), rank, kPart));
  expect_same("broadcast behind it", whole, values_of<float>(0, kLong));
}

/// A message that nobody has received yet, and that MPI keeps meanwhile, is none of a collective's, whatever its tag.
/// It is as short as those that MPI keeps at once: a longer one may wait for its receiver, who is in the collective.
void check_waiting_messages(Communicator& group, const Context& context) {
  constexpr int64_t kLength = 600, kMessage = 8;
  const int rank = group.rank(), size = group.size(), next = (rank + 1) % size, previous = (rank + size - 1) % size;
  if (size == 1) return;
  for (const int tag : {0, 1}) {
    const Tensor sent = tensor_of(context, values_of<float>(100 + rank, kMessage));
    group.send(sent, next, tag).wait();
    const Tensor full = context.zeros({kLength * size}, DType::f32);
    group.all_gather(tensor_of(context, values_of<float>(rank, kLength)), full).wait();
    for (int peer = 0; peer < size; ++peer)
      expect_same("all_gather beside a message", full.flat(peer * kLength, (peer + 1) * kLength),
                  values_of<float>(peer, kLength));
    const Tensor sum = tensor_of(context, values_of<float>(rank, kLength * size));
    group.all_reduce(sum).wait();
    expect_same("all_reduce beside a message", sum, reduced_of<float>(all_ranks(size), kLength * size, ReduceOp::sum));
    const Tensor got = context.zeros({kMessage}, DType::f32);
    group.recv(got, previous, tag).wait();
    expect_same("the message", got, values_of<float>(100 + previous, kMessage));
  }
}

void run_checks(bool windows) {
  const auto kernels = std::make_shared<SlowSums>();
  const Context context{Memory::create(), kernels};
  MpiWorld world(context, {.shared_windows = windows});
  check_waiting_messages(world.world(), context);
  check_slow_reader(world.world(), context, *kernels);
  world.world().barrier().wait();
  if (world.world().rank() == 0) std::printf("ok: on %d ranks\n", world.world().size());
}

}  // namespace
}  // namespace nought

int main(int argc, char** argv) {
  try {
    nought::run_checks(argc < 2 || std::string_view(argv[1]) != "windows=0");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "test_comm_mpi_seams: %s\n", error.what());
    nought::MpiWorld::abort(3);
  }
  return 0;
}
