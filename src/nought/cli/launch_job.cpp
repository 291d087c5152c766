#include "nought/cli/launch_job.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "nought/base/host.h"

namespace nought {

namespace {

std::optional<int> integer_variable(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (end == text || *end != '\0' || value < 0) return std::nullopt;
  return static_cast<int>(value);
}

/// The same two facts under each launcher's names.
struct Launcher {
  const char *rank, *size;
};
constexpr std::array kLaunchers{
    Launcher{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    Launcher{"PMI_RANK", "PMI_SIZE"},
    Launcher{"PMIX_RANK", "SLURM_STEP_NUM_TASKS"},
};

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
    std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
    std::string siblings;
    if (!std::getline(file, siblings)) siblings = fmt::format("cpu{}", cpu);
    cores.insert(siblings);
  }
  return std::max(1, static_cast<int>(cores.size()));
}

/// The cgroup's share of processor time, in cores; a large number where there is no limit.
int processor_time_limit() {
  std::ifstream version2("/sys/fs/cgroup/cpu.max");
  double quota = 0, period = 0;
  if (!(version2 >> quota >> period)) {  // "max 100000" fails to parse too: no limit
    std::ifstream quota_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"),
        period_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
    if (!(quota_file >> quota) || !(period_file >> period)) quota = 0;
  }
  constexpr int kUnlimited = 1 << 20;
  return quota > 0 && period > 0 ? std::max(1, static_cast<int>(std::ceil(quota / period))) : kUnlimited;
}

/// 0 if it does not tell.
int columns_of_terminal(int fd) {
  winsize size{};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

}  // namespace

std::optional<JobPlace> place_in_job() {
  for (const Launcher& launcher : kLaunchers) {
    const std::optional<int> rank = integer_variable(launcher.rank), size = integer_variable(launcher.size);
    if (!rank || !size || *size < 1) continue;
    return JobPlace{*rank, *size, launched_on_host().value_or(*size)};
  }
  return std::nullopt;
}

std::optional<JobPlace> place_of_torchrun() {
  const std::optional<int> rank = integer_variable("RANK"), size = integer_variable("WORLD_SIZE");
  if (!rank || size.value_or(1) <= 1) return std::nullopt;
  return JobPlace{*rank, *size, launched_on_host().value_or(*size)};
}

Cores find_cores() {
  std::vector<int> online(static_cast<size_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))));
  for (size_t i = 0; i < online.size(); ++i) online[i] = static_cast<int>(i);
  const int limit = processor_time_limit();
  return {std::min(count_cores(online), limit), std::min(count_cores(allowed_cpus()), limit)};
}

int divide_cores(const Cores& cores, int local_ranks) {
  return std::max(1, std::min(cores.usable, cores.machine / std::max(1, local_ranks)));
}

int threads_per_rank() {
  if (const std::optional<int> threads = integer_variable("OMP_NUM_THREADS"); threads && *threads > 0) return *threads;
  const std::optional<JobPlace> place = place_in_job();
  return divide_cores(find_cores(), place ? place->local_size : 1);
}

int stdout_columns() {
  constexpr int kUsual = 80;  // where a terminal does not tell its width
  if (!place_in_job()) {
    if (isatty(STDOUT_FILENO) != 1) return 0;
    const int columns = columns_of_terminal(STDOUT_FILENO);
    return columns > 0 ? columns : kUsual;
  }
  const int at_start = integer_variable(kColumnsVariable).value_or(0);
  if (at_start == 0) return 0;
  // A rank on the launcher's host has the same controlling terminal, which may have been resized since.
  const int terminal = open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
  const int columns = terminal >= 0 ? columns_of_terminal(terminal) : 0;
  if (terminal >= 0) close(terminal);
  return columns > 0 ? columns : at_start;
}

}  // namespace nought
