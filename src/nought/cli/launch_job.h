// The place of this process in a job of mpirun or srun, and the cores that it may use.
#pragma once

#include <optional>

namespace nought {

struct JobPlace {
  int rank = 0;
  int size = 1;
  int local_size = 1;  // ranks of the job on this machine
};

/// The place that mpirun or srun gave this process; empty if neither started it. It does not need MPI_Init.
std::optional<JobPlace> place_in_job();

/// Ranks as torchrun and `accelerate launch` name them (RANK and WORLD_SIZE), if there are several. They are no job:
/// such processes do not find each other here.
std::optional<JobPlace> place_of_torchrun();

/// Numbers of physical cores.
struct Cores {
  int machine = 1;  // the cores of the machine
  int usable = 1;   // those that this process may use; a limit on processor time (cgroup) counts too
};
Cores find_cores();

/// OpenMP threads for each of `local_ranks` ranks that share the machine, at least 1. A rank that is bound to cores
/// uses these. Ranks that are not bound divide the cores.
int divide_cores(const Cores& cores, int local_ranks);

/// OpenMP threads of this rank: OMP_NUM_THREADS if it is set, else what divide_cores() gives for its machine.
int threads_per_rank();

/// How many columns the terminal has now at which stdout ends, also if mpirun is in between; 0 if stdout ends
/// elsewhere. (isatty() does not tell: in a rank, stdout is always mpirun's pseudo-terminal.)
int stdout_columns();

/// The environment variable by which the launcher tells its ranks stdout_columns() when they start.
inline constexpr const char* kColumnsVariable = "NOUGHT_STDOUT_COLUMNS";

}  // namespace nought
