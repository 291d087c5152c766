// Whether what a run writes and opens fits this machine: the disk and the inodes of its output folder, files that are
// open and maps of one process, and /dev/shm.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "nought/config/run_plan.h"
#include "nought/prove/transcript.h"

namespace nought {

/// What there is; -1: nobody says, or there is no limit.
struct MachineLimits {
  // Free, where the output folder is or would be, or taken by checkpoints in it, which the run keeps or removes.
  int64_t disk_bytes = -1, inodes = -1;
  int64_t open_files = -1, maps = -1;  // that one process may have
  int64_t shared_bytes = -1;           // free in /dev/shm
};
/// IoError, in the words of `nought train`, if the folder can not be written to.
MachineLimits machine_limits(const std::filesystem::path& output_dir);

/// What a run takes of it.
struct MachineNeeds {
  int64_t checkpoint_bytes = 0, checkpoint_files = 0;  // what one checkpoint takes
  int64_t kept = 1;                                    // checkpoints that lie there at once, as far as that is known
  bool all_kept = true;                                // `kept` is all of the run's, and not the first alone
  int64_t export_bytes = 0, export_files = 0;
  int64_t open_files = 0, maps = 0;
  int64_t shared_bytes = 0;

  int64_t disk_bytes() const { return checkpoint_bytes * kept + export_bytes; }
  int64_t inodes() const { return checkpoint_files * kept + export_files; }
};
/// checkpoint_bytes: those of all ranks. export_bytes: of the weights that the run ends with.
MachineNeeds machine_needs(const RunPlan& plan, int64_t checkpoint_bytes, int64_t export_bytes);

/// What does not fit, first; nothing if all does.
std::optional<Counterexample> find_shortage(const MachineNeeds& needs, const MachineLimits& limits,
                                            const std::string& output_dir);
/// "2 checkpoints of 1.2 GiB and an export of 0.2 GiB in 9.1 GiB of disk; 24 files of ...".
std::string describe_needs(const MachineNeeds& needs, const MachineLimits& limits);

}  // namespace nought
