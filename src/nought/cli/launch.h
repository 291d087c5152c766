// launch() turns a command into a group of ranks: itself alone, or a job of mpirun in which every rank runs the
// command.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "nought/cli/commands.h"
#include "nought/cli/launch_job.h"
#include "nought/comm/communicator.h"

namespace nought {

struct LaunchOptions {
  std::optional<int64_t> ranks;
  std::string hostfile;
};

/// Adds --ranks and --hostfile.
void add_launch_options(CLI::App& command, LaunchOptions& options);

/// OpenMP threads of the calling thread's kernels from here on.
void use_threads(int threads);

/// What a rank does, with the communicator of all ranks and the context that it computes with.
using RankBody = std::function<void(Communicator& world, const Context& context)>;

/// Runs `body` once in every rank, with the communicator of all ranks and threads_per_rank() OpenMP threads, and
/// returns the exit code of the whole. Already under mpirun or srun it joins that job. Else `validate` runs here first,
/// so that what is wrong with the input is said once and before any rank exists; then one rank runs here, or several
/// through mpirun, which start this program again with the same arguments. A rank that fails prints its line and ends
/// the job.
int launch(const Invocation& invocation, const LaunchOptions& options, const std::function<void()>& validate,
           const RankBody& body);

}  // namespace nought
