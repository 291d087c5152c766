// The place of this process in a job of mpirun or srun, and the cores that it may use.
#pragma once

#include <optional>

#include "nought/base/cores.h"

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

/// OpenMP threads of this rank: OMP_NUM_THREADS if it is set, else what divide_cores() gives for its machine.
int threads_per_rank();

/// How many columns the terminal has now at which stdout ends, also if mpirun is in between; 0 if stdout ends
/// elsewhere. (isatty() does not tell: in a rank, stdout is always mpirun's pseudo-terminal.)
int stdout_columns();

/// The environment variable by which the launcher tells its ranks stdout_columns() when they start.
inline constexpr const char* kColumnsVariable = "NOUGHT_STDOUT_COLUMNS";

}  // namespace nought
