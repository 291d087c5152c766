// launch(): runs a command in a group of ranks: in this process alone, or in a job of mpirun in which every rank runs
// it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "nought/cli/commands.h"
#include "nought/cli/hostfile.h"
#include "nought/cli/launch_job.h"
#include "nought/comm/communicator.h"

namespace nought {

struct LaunchOptions {
  std::optional<int64_t> ranks;
  std::string hostfile = {}, include = {}, exclude = {};  // see cli/hostfile.h
  std::string device = "cpu";                             // where ranks compute: see cli/device.h
  std::string collectives = "auto";                       // how tensors of their devices travel: see comm/linked.h
  bool finishes_step = false;  // the body heeds a first signal by itself (StopSignals): the ranks get it as SIGUSR1
};

/// Adds --ranks, --hostfile, --include and --exclude.
void add_launch_options(CLI::App& command, LaunchOptions& options);

/// The hosts of --hostfile that --include and --exclude leave; none without it. ConfigError, IoError.
std::vector<Host> hosts_of(const LaunchOptions& options);

/// Sets how many OpenMP threads the kernels of the calling thread use: under `ulimit -v` no more than find room.
void use_threads(int threads);

/// The work of a rank. `world` is the communicator of all ranks.
using RankBody = std::function<void(Communicator& world, const Context& context)>;

/// Runs `body` once in every rank, with threads_per_rank() OpenMP threads, and returns the exit code of the whole.
/// Under mpirun or srun this process joins their job. Else `validate` runs here first, so that wrong input is reported
/// once and before there are ranks. Then one rank runs here, or mpirun starts this program again with the same
/// arguments as several ranks. A rank that fails prints its line and ends the job.
int launch(const Invocation& invocation, const LaunchOptions& options, const std::function<void()>& validate,
           const RankBody& body);

}  // namespace nought
