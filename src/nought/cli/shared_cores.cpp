#include "nought/cli/shared_cores.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "nought/cli/launch.h"
#include "nought/cli/launch_job.h"
#include "nought/comm/thread.h"

namespace nought {

SharedCores shared_cores(int ranks, int threads) {
  const Cores cores = find_cores();
  const bool bound = cores.usable < cores.machine;  // to cores of its own
  return {.threads = threads,
          .share = bound ? static_cast<double>(threads) / cores.usable
                         : static_cast<double>(threads) * ranks / cores.machine};
}

SharedCores shared_cores_of_job(int world_size) {
  const std::optional<JobPlace> place = place_in_job();
  return shared_cores(place ? place->local_size : world_size, threads_per_rank());
}

OperationTimes times_on_this_machine(const RunPlan& plan, const ModelConfig& config, const Layout& layout) {
  constexpr int kMostPerCore = 4;
  const Cores cores = find_cores();
  const int local = plan.layout.ranks <= kMostPerCore * cores.machine ? plan.layout.ranks : cores.machine;
  const int threads = std::getenv("OMP_NUM_THREADS") != nullptr ? threads_per_rank() : divide_cores(cores, local);
  const SharedCores shared = shared_cores(local, threads);
  use_threads(threads);
  if (local == 1) return measure_operations(*make_self_communicator(), plan, config, layout, shared);
  std::optional<OperationTimes> times;
  run_ranks(local, [&](Communicator& ranks, const Context&) {
    use_threads(threads);
    OperationTimes own = measure_operations(ranks, plan, config, layout, shared);
    if (ranks.rank() == 0) times = std::move(own);
  });
  return std::move(*times);
}

}  // namespace nought
