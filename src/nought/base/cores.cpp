#include "nought/base/cores.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include "nought/base/open_file.h"

namespace nought {

namespace {

std::vector<int> allowed_cpus() {
  constexpr int kMaxCpus = 8192;
  const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(kMaxCpus), [](cpu_set_t* s) { CPU_FREE(s); });
  const size_t bytes = CPU_ALLOC_SIZE(kMaxCpus);
  std::vector<int> cpus;
  CPU_ZERO_S(bytes, set.get());
  if (sched_getaffinity(0, bytes, set.get()) != 0) return {0};
  for (int cpu = 0; cpu < kMaxCpus; ++cpu)
    if (CPU_ISSET_S(static_cast<size_t>(cpu), bytes, set.get())) cpus.push_back(cpu);
  return cpus;
}

/// Cores behind the given logical CPUs: hyper-threads of one core name the same siblings.
int count_cores(const std::vector<int>& cpus) {
  std::set<std::string> cores;
  for (int cpu : cpus) {
    const std::string name = fmt::format("cpu{}", cpu);
    const std::string siblings =
        system_text(fmt::format("/sys/devices/system/cpu/{}/topology/thread_siblings_list", name));
    cores.insert(siblings.empty() ? name : siblings);
  }
  return std::max(1, static_cast<int>(cores.size()));
}

/// The cgroup's share of processor time, in cores; a large number where there is no limit.
int processor_time_limit() {
  std::istringstream version2(system_text("/sys/fs/cgroup/cpu.max"));
  double quota = 0, period = 0;
  if (!(version2 >> quota >> period)) {  // "max 100000" fails to parse too: no limit
    std::istringstream version1(system_text("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") + " " +
                                system_text("/sys/fs/cgroup/cpu/cpu.cfs_period_us"));
    if (!(version1 >> quota >> period)) quota = 0;
  }
  constexpr int kUnlimited = 1 << 20;
  return quota > 0 && period > 0 ? std::max(1, static_cast<int>(std::ceil(quota / period))) : kUnlimited;
}

}  // namespace

Cores find_cores() {
  std::vector<int> online(static_cast<size_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))));
  for (size_t i = 0; i < online.size(); ++i) online[i] = static_cast<int>(i);
  const int limit = processor_time_limit();
  return {std::min(count_cores(online), limit), std::min(count_cores(allowed_cpus()), limit)};
}

int divide_cores(const Cores& cores, int local_ranks) {
  return std::max(1, std::min(cores.usable, cores.machine / std::max(1, local_ranks)));
}

double cores_for_each(const Cores& cores, int threads) {
  return std::min(1.0, static_cast<double>(cores.usable) / std::max(threads, 1));
}

}  // namespace nought
