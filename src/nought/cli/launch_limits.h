// The limits of the system that several ranks on one machine run into: found before mpirun starts, because behind it
// they are hangs, or texts of Open MPI that do not name them.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace nought {

struct LaunchLimits {
  static constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();

  uint64_t open_files = kNone;      // ulimit -n
  uint64_t file_bytes = kNone;      // ulimit -f
  std::string shared_folder = {};   // where Open MPI keeps the memory that ranks share; "": not looked at
  uint64_t shared_bytes = kNone;    // that are free there
  std::string session_folder = {};  // where mpirun keeps the files of the job; "": not looked at
  uint64_t session_bytes = kNone;   // that are free there
};

/// The limits of this process, after it has raised its own limit of open files as far as it may.
LaunchLimits find_launch_limits();

/// DeviceError, which names the limit, what is needed and what to do, if `local_ranks` ranks cannot be started here.
void check_launch_limits(const LaunchLimits& limits, int local_ranks);

}  // namespace nought
