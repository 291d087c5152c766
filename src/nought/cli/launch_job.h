// Where this process stands: its place in a job of mpirun or srun, and the cores that it may use.
#pragma once

#include <optional>

namespace nought {

struct JobPlace {
  int rank = 0;
  int size = 1;
  int local_size = 1;  // ranks of the job on this machine
};

/// The place that mpirun or srun gave this process, or nothing outside of them. Needs no MPI_Init.
std::optional<JobPlace> place_in_job();

/// Physical cores: those of the machine, and those of them that this process may run on. A container's limit on
/// processor time (cgroup) counts as a limit on cores.
struct Cores {
  int machine = 1;
  int usable = 1;
};
Cores find_cores();

/// OpenMP threads for each of `local_ranks` ranks that share the machine: a bound rank uses what it is bound to,
/// unbound ranks divide the cores; at least 1.
int divide_cores(const Cores& cores, int local_ranks);

/// OpenMP threads of this rank: OMP_NUM_THREADS if it is set, else divide_cores() at this place.
int threads_per_rank();

/// True if stdout, across mpirun, ends at a terminal: then a progress line may be overwritten. (Inside a rank isatty()
/// sees mpirun's own pseudo-terminal, whatever stands behind it.)
bool stdout_is_terminal();

/// How the launcher tells its ranks that stdout ends at a terminal.
inline constexpr const char* kTerminalVariable = "NOUGHT_STDOUT_IS_TERMINAL";

}  // namespace nought
