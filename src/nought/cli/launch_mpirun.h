// Runs mpirun as a child: its command line and environment, its signals, and the one line that its failures become.
#pragma once

#include <string>
#include <vector>

#include "nought/cli/launch_job.h"

namespace nought {

/// What to start: `ranks` processes of `program` with `arguments`. With a host file, ranks 0 means all of its slots.
struct MpirunJob {
  int ranks = 0;
  std::string hostfile;
  std::string program;
  std::vector<std::string> arguments;
};

struct MpirunCommand {
  std::vector<std::string> arguments;    // arguments[0] is mpirun
  std::vector<std::string> environment;  // "NAME=value", where the user did not set NAME
};

/// On one machine: one share of its cores bound to each rank, or no binding when there are more ranks than cores. Over
/// several machines (a host file, or the allocation of a batch system) mpirun places the ranks and binds none of them.
MpirunCommand mpirun_command(const std::string& mpirun, const MpirunJob& job, const Cores& cores, bool in_allocation);

/// The path of mpirun; ConfigError with how to install it if PATH has none.
std::string find_mpirun();

/// Starts the ranks, passes on SIGINT, SIGTERM and SIGHUP, waits, and returns the job's exit code. mpirun's own
/// messages become one line, which is printed only if no rank has printed its error.
int run_mpirun(const MpirunJob& job);

}  // namespace nought
