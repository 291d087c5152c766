#include "nought/cli/launch_limits.h"

#include <algorithm>
#include <cstdlib>

#include <sys/resource.h>
#include <sys/statvfs.h>

#include "nought/base/error.h"
#include "nought/base/text.h"

namespace nought {

namespace {

// Open MPI 4.1: mpirun, which has more open than a rank, and its pipes and sockets for each rank.
constexpr uint64_t kFilesOfMpirun = 40, kFilesPerRank = 8;
// A segment of 4 MiB (btl_vader_segment_size) and the control structures of a rank.
constexpr uint64_t kSharedPerRank = uint64_t{5} << 20;
constexpr uint64_t kLargestFile = uint64_t{8} << 20;
// The session's folder, in which PMIx maps files that the ranks read.
constexpr uint64_t kSessionBytes = uint64_t{16} << 20;

uint64_t limit_of(__rlimit_resource resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return LaunchLimits::kNone;
  return limit.rlim_cur;
}

/// The soft limit is often 1024, for the sake of old programs that use select().
void raise_open_files() {
  rlimit limit{};
  constexpr rlim_t kEnough = 4096;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kEnough) return;
  limit.rlim_cur = std::min(limit.rlim_max, kEnough);
  setrlimit(RLIMIT_NOFILE, &limit);
}

uint64_t free_bytes(const std::string& folder) {
  struct statvfs status {};
  if (statvfs(folder.c_str(), &status) != 0) return LaunchLimits::kNone;  // what is wrong there shows when it is used
  return uint64_t{status.f_bavail} * status.f_frsize;
}

/// The first of the variables that is set.
std::string variable(std::initializer_list<const char*> names, const char* otherwise) {
  for (const char* name : names)
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') return value;
  return otherwise;
}

/// "16.0 MiB", as a message shows a number that may exceed int64_t.
std::string shown_size(uint64_t bytes) {
  return format_bytes(static_cast<int64_t>(std::min<uint64_t>(bytes, std::numeric_limits<int64_t>::max())));
}

}  // namespace

LaunchLimits find_launch_limits() {
  raise_open_files();
  LaunchLimits limits;
  limits.open_files = limit_of(RLIMIT_NOFILE);
  limits.file_bytes = limit_of(RLIMIT_FSIZE);
  if (std::getenv("OMPI_MCA_btl") == nullptr) {  // else the user has chosen how ranks reach each other
    limits.shared_folder = variable({"OMPI_MCA_btl_vader_backing_directory"}, "/dev/shm");
    limits.shared_bytes = free_bytes(limits.shared_folder);
  }
  limits.session_folder = variable({"OMPI_MCA_orte_tmpdir_base", "TMPDIR", "TMP", "TEMP"}, "/tmp");
  limits.session_bytes = free_bytes(limits.session_folder);
  return limits;
}

void check_launch_limits(const LaunchLimits& limits, int local_ranks) {
  const auto ranks = static_cast<uint64_t>(std::max(local_ranks, 1));
  const std::string who = ranks == 1 ? "a rank" : fmt::format("{} ranks", ranks);
  const uint64_t files = kFilesOfMpirun + ranks * kFilesPerRank;
  require<DeviceError>(limits.open_files >= files,
                       "the limit of open files is {} (ulimit -n), {} and mpirun need {}: raise it with `ulimit -n {}`",
                       limits.open_files, who, files, files);
  require<DeviceError>(
      limits.file_bytes >= kLargestFile,
      "the limit of the size of a file is {} (ulimit -f), the memory that {} share{} needs {}: raise it "
      "with `ulimit -f unlimited`",
      shown_size(limits.file_bytes), who, ranks == 1 ? "s" : "", shown_size(kLargestFile));
  const uint64_t shared = ranks * kSharedPerRank;
  require<DeviceError>(
      limits.shared_folder.empty() || limits.shared_bytes >= shared,
      "{} has {} free, the memory that {} share needs {} there: enlarge it (mount -o remount,size=1g "
      "{}; docker run --shm-size=1g), or set OMPI_MCA_btl_vader_backing_directory to a folder with room",
      limits.shared_folder, shown_size(limits.shared_bytes), who, shown_size(shared), limits.shared_folder);
  require<DeviceError>(limits.session_folder.empty() || limits.session_bytes >= kSessionBytes,
                       "{} has {} free, the files of mpirun need {} there: make room, or set TMPDIR to another folder",
                       limits.session_folder, shown_size(limits.session_bytes), shown_size(kSessionBytes));
}

}  // namespace nought
