#include "nought/measure/rates.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "nought/base/processor_time.h"
#include "nought/base/text.h"
#include "nought/base/timing.h"
#include "nought/comm/mesh.h"
#include "nought/kernels/work.h"
#include "nought/measure/peak.h"
#include "nought/measure/samples.h"
#include "nought/measure/swap_rates.h"

namespace nought {

namespace {

/// B/s of y += x.
double measure_memory(const Context& context) {
  constexpr int64_t kElements = int64_t{16} << 20;
  const auto ones = [&] {
    const Tensor tensor = context.empty({kElements}, DType::f32, Category::workspace);
    context.run(Fill{.x = tensor, .value = 1});  // has pages of its own from now on
    return tensor;
  };
  const AddTo add{.x = ones(), .into = ones()};
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 3; ++i) least = std::min(least, seconds_of([&] { context.run(add); }));
  return work_of(add).bytes / least;
}

/// The least time of several calls. What a call takes beyond it is due to other programs.
double least_seconds(Communicator& ranks, int calls, const std::function<void()>& call) {
  Samples samples;
  ranks.barrier().wait();
  for (int i = 0; i < calls; ++i) samples.values.push_back(seconds_of(call));
  return samples.min();
}

/// Work of about a millisecond, as stands between two collectives of a step.
class SomeWork {
 public:
  explicit SomeWork(const Context& context) : context_(context), product_{matrix(), matrix(), matrix()} {
    double least = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 5; ++i) least = std::min(least, seconds_of([&] { context_.run(product_); }));
    times_ = std::clamp(static_cast<int>(1e-3 / least), 1, 1000);
  }
  void run() const {
    for (int i = 0; i < times_; ++i) context_.run(product_);
  }

 private:
  Tensor matrix() const { return context_.zeros({128, 128}, DType::f32, Category::workspace); }

  const Context& context_;
  MatMul product_;
  int times_ = 1;
};

/// What a call takes behind work, besides the work: ranks do not end theirs at once. Ranks that are more than the cores
/// wait for a turn, too, which differs from call to call, and then it is a mean that counts. 0 where other programs
/// take the cores: one would wait for these.
double seconds_behind_work(Communicator& ranks, const Context& context, const SharedCores& cores,
                           const std::function<void()>& call) {
  constexpr size_t kCalls = 32;
  constexpr double kBusy = 1.1;  // times that work takes longer than ranks alone explain
  const SomeWork work(context);
  const double share = std::max(cores.share, 1.0);
  std::vector<double> waited;
  double all_worked = 0, all_alone = 0;
  ranks.barrier().wait();
  for (size_t i = 0; i < kCalls; ++i) {
    double processor = 0;
    const double worked = seconds_of([&] { processor = processor_seconds_of([&] { work.run(); }); });
    const double called = seconds_of(call), alone = cores.threads == 1 ? processor : worked;
    waited.push_back(worked + called - share * alone);
    all_worked += worked, all_alone += share * alone;
  }
  std::array<double, 1> busiest{all_worked / all_alone};
  all_reduce_values(ranks, context, busiest, ReduceOp::max);
  if (busiest[0] > kBusy) return 0;
  std::sort(waited.begin(), waited.end());
  if (share == 1) return waited[kCalls / 4];
  const auto most = waited.begin() + kCalls * 9 / 10;
  return std::accumulate(waited.begin(), most, 0.0) / static_cast<double>(most - waited.begin());
}

/// Collectives of all ranks. What goes within smaller groups is taken to be as fast.
void measure_collectives(Communicator& ranks, const Context& context, const SharedCores& cores, MachineRates& rates) {
  if (ranks.size() == 1) return;
  constexpr int64_t kElements = 1 << 18;  // 1 MiB
  constexpr int kCalls = 7;
  const int64_t part = kElements / ranks.size();
  const Tensor whole = context.zeros({part * ranks.size()}, DType::f32, Category::workspace);
  const Tensor shard = context.zeros({part}, DType::f32, Category::workspace);
  const Tensor few = context.zeros({ranks.size()}, DType::f32, Category::workspace);
  const auto sent = static_cast<double>((ranks.size() - 1) * part * size_of(DType::f32));
  const auto short_call = [&] { ranks.all_reduce(few).wait(); };
  rates.call = least_seconds(ranks, 3 * kCalls, short_call);
  const auto rate = [&](const std::function<void()>& call) {
    return sent / std::max(least_seconds(ranks, kCalls, call) - rates.call, 1e-6);
  };
  rates.gathered = rate([&] { ranks.all_gather(shard, whole).wait(); });
  rates.reduced = rate([&] { ranks.reduce_scatter(whole, shard).wait(); });
  rates.call = std::max(rates.call, seconds_behind_work(ranks, context, cores, short_call));
}

}  // namespace

MachineRates measure_rates(Communicator& ranks, const RunPlan& plan, const SharedCores& cores) {
  const Context context = Context::cpu();  // no part of a run: neither of its budgets nor of its peaks
  MachineRates rates;
  rates.threads = cores.threads, rates.share = cores.share;
  ranks.barrier().wait();
  rates.flops = measure_product_rate(context, plan.layout.sharding.dtype);
  rates.memory = measure_memory(context);
  measure_collectives(ranks, context, cores, rates);
  const bool states = plan.layout.sharding.offload_optimizer.tier.pool == Pool::file;
  if (states || plan.layout.sharding.offload_param.tier.pool == Pool::file) {
    try {
      const std::string& folder =
          states ? plan.layout.sharding.offload_optimizer.tier.folder : plan.layout.sharding.offload_param.tier.folder;
      const SwapRates files = measure_swap(
          *context.memory, folder,
          states ? plan.layout.sharding.offload_optimizer.tier.aio : plan.layout.sharding.offload_param.tier.aio);
      rates.read = files.read.median(), rates.write = files.write.median();
    } catch (const Error& error) {
      rates.note = fmt::format("files are left out: {}", error.what());
    }
  }
  std::array<double, 7> slowest{rates.flops, rates.memory,   rates.read,   rates.write,
                                -rates.call, rates.gathered, rates.reduced};
  all_reduce_values(ranks, context, slowest, ReduceOp::min);
  rates.flops = slowest[0], rates.memory = slowest[1], rates.read = slowest[2], rates.write = slowest[3];
  rates.call = -slowest[4], rates.gathered = slowest[5], rates.reduced = slowest[6];
  return rates;
}

}  // namespace nought
