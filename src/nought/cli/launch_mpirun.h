// Runs mpirun as a child process: makes its command line and environment, passes signals on, and reports its failures
// in one line.
#pragma once

#include <string>
#include <vector>

#include "nought/cli/hostfile.h"
#include "nought/cli/launch_job.h"

namespace nought {

/// A job: `ranks` processes of `program` with `arguments`. With hosts, 0 ranks means all of their slots.
struct MpirunJob {
  int ranks = 0;
  std::vector<Host> hosts;  // none: this machine, or what a batch system allocated
  std::string program;
  std::vector<std::string> arguments;
  bool finishes_step = false;  // a first signal is passed on as SIGUSR1, and the ranks get the time that they need
};

struct MpirunCommand {
  std::vector<std::string> arguments;    // arguments[0] is mpirun
  std::vector<std::string> environment;  // "NAME=value" for each variable that the user did not set
};

/// The command that starts a job. On one machine each rank is bound to an equal share of the cores, or to none if there
/// are more ranks than cores. On several machines (hosts, or the allocation of a batch system) mpirun places the
/// ranks, and no rank is bound.
MpirunCommand mpirun_command(const std::string& mpirun, const MpirunJob& job, const Cores& cores, bool allocated);

/// Whether this process belongs to an allocation of a batch system, which mpirun asks for hosts and starts ranks by.
bool in_allocation();

/// The path of mpirun. If PATH has none, ConfigError says how to install it.
std::string find_mpirun();

/// Starts the ranks, passes on SIGINT, SIGTERM, SIGUSR1, SIGUSR2 and SIGHUP, waits, and returns the job's exit code.
/// mpirun's own messages become one line, which is printed only if no rank has printed its error.
int run_mpirun(const MpirunJob& job);

}  // namespace nought
