#include "nought/bench/rates.h"

#include <array>
#include <limits>

#include "nought/base/text.h"
#include "nought/bench/swap.h"
#include "nought/comm/mesh.h"
#include "nought/kernels/work.h"
#include "nought/train/peak.h"

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

}  // namespace

MachineRates measure_rates(Communicator& ranks, const RunPlan& plan) {
  const Context context = Context::cpu();  // no part of a run: neither of its budgets nor of its peaks
  MachineRates rates;
  ranks.barrier().wait();
  rates.flops = measure_product_rate(context, plan.dtype);
  rates.memory = measure_memory(context);
  const bool states = plan.offload_optimizer.home == Pool::file;
  if (states || plan.offload_param.home == Pool::file) {
    try {
      const std::string& folder = states ? plan.offload_optimizer.folder : plan.offload_param.folder;
      const SwapRates files =
          measure_swap(*context.memory, folder, states ? plan.offload_optimizer.aio : plan.offload_param.aio);
      rates.read = files.read.median(), rates.write = files.write.median();
    } catch (const Error& error) {
      rates.note = fmt::format("files are left out: {}", error.what());
    }
  }
  std::array<double, 4> slowest{rates.flops, rates.memory, rates.read, rates.write};
  all_reduce_values(ranks, context, slowest, ReduceOp::min);
  rates.flops = slowest[0], rates.memory = slowest[1], rates.read = slowest[2], rates.write = slowest[3];
  return rates;
}

}  // namespace nought
