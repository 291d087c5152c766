#include "nought/prove/machine_limits.h"

#include <algorithm>
#include <fstream>

#include <sys/resource.h>
#include <sys/statvfs.h>

#include "nought/base/math.h"
#include "nought/base/text.h"
#include "nought/checkpoint/checkpoint_folders.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kFilesBeside = 8;         // a checkpoint has a manifest, a config and a tokenizer, too
constexpr int64_t kFilesOfProcess = 64;     // streams, sockets, libraries that a rank has open anyway
constexpr int64_t kMapsOfProcess = 2000;    // libraries, stacks, blocks of memory
constexpr int64_t kSharedOfRank = 4 << 20;  // Open MPI's btl_vader_segment_size
constexpr int kRanksOfHost = 256;           // jobs of more have several hosts

fs::path nearest_there(const fs::path& folder) {
  std::error_code ignored;
  fs::path path = fs::absolute(folder);
  while (!fs::exists(path, ignored) && path.has_parent_path() && path != path.parent_path()) path = path.parent_path();
  return path;
}

struct Free {
  int64_t bytes = -1, inodes = -1;
};
Free free_of(const fs::path& path) {
  struct statvfs system = {};
  if (statvfs(path.c_str(), &system) != 0) return {};
  Free free{.bytes = static_cast<int64_t>(system.f_bavail) * static_cast<int64_t>(system.f_frsize)};
  if (system.f_files > 0) free.inodes = static_cast<int64_t>(system.f_favail);  // some systems have no table of them
  return free;
}

Free taken_by_checkpoints(const fs::path& output_dir) {
  Free taken{.bytes = 0, .inodes = 0};
  std::error_code ignored;
  if (!fs::is_directory(output_dir, ignored)) return taken;
  for (const fs::path& checkpoint : list_checkpoints(output_dir))
    for (const fs::directory_entry& file : fs::recursive_directory_iterator(checkpoint, ignored)) {
      const uintmax_t bytes = file.is_regular_file(ignored) ? file.file_size(ignored) : 0;
      if (!ignored) taken.bytes += static_cast<int64_t>(bytes);
      ++taken.inodes;
    }
  return taken;
}

int64_t open_file_limit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return -1;
  return static_cast<int64_t>(limit.rlim_cur);
}

int64_t map_limit() {
  std::ifstream file("/proc/sys/vm/max_map_count");
  int64_t count = -1;
  return file >> count ? count : -1;
}

bool exceeds(int64_t needed, int64_t there) { return there >= 0 && needed > there; }

}  // namespace

MachineLimits machine_limits(const fs::path& output_dir) {
  Free disk = free_of(nearest_there(output_dir));
  const Free kept = taken_by_checkpoints(output_dir);
  if (disk.bytes >= 0) disk.bytes += kept.bytes;
  if (disk.inodes >= 0) disk.inodes += kept.inodes;
  return {.disk_bytes = disk.bytes,
          .inodes = disk.inodes,
          .open_files = open_file_limit(),
          .maps = map_limit(),
          .shared_bytes = free_of("/dev/shm").bytes};
}

MachineNeeds machine_needs(const RunPlan& plan, int64_t checkpoint_bytes, int64_t export_bytes) {
  const int ranks = plan.layout.ranks;
  MachineNeeds needs{.checkpoint_bytes = checkpoint_bytes, .checkpoint_files = ranks + kFilesBeside};
  const int64_t every = plan.save_epochs ? 0 : plan.save_steps;
  if (plan.save_total_limit > 0) {
    needs.kept = plan.save_total_limit + 1 + (plan.best ? 1 : 0);  // the next is written before the oldest goes
  } else if (plan.max_steps > 0 && !plan.save_epochs) {
    needs.kept = every > 0 ? ceil_div(plan.max_steps, every) : 1;
  } else {
    needs.all_kept = false;
  }
  if (plan.max_steps > 0 && every > 0) needs.kept = std::min(needs.kept, ceil_div(plan.max_steps, every));
  needs.export_bytes = export_bytes;
  needs.export_files = ceil_div(export_bytes, std::max<int64_t>(plan.max_shard_bytes, 1)) + kFilesBeside;
  // A rank that resumes opens and maps the files of all ranks.
  needs.open_files = kFilesOfProcess + ranks, needs.maps = kMapsOfProcess + ranks;
  if (1 < ranks && ranks <= kRanksOfHost && !plan.layout.on_gpu()) needs.shared_bytes = ranks * kSharedOfRank;
  return needs;
}

std::optional<Counterexample> find_shortage(const MachineNeeds& needs, const MachineLimits& limits,
                                            const std::string& output_dir) {
  if (exceeds(needs.disk_bytes(), limits.disk_bytes))
    return Counterexample{
        -1, fmt::format("{} checkpoint{} of {} and the weights, {}, do not fit the {} that are free in {}: free room, "
                        "or set training.save_total_limit",
                        needs.kept, needs.kept == 1 ? "" : "s", format_bytes(needs.checkpoint_bytes),
                        format_bytes(needs.export_bytes), format_bytes(limits.disk_bytes), output_dir)};
  if (exceeds(needs.inodes(), limits.inodes))
    return Counterexample{-1, fmt::format("{} files of checkpoints are more than the {} that the file system of {} has "
                                          "room for: set training.save_total_limit",
                                          needs.inodes(), limits.inodes, output_dir)};
  if (exceeds(needs.open_files, limits.open_files))
    return Counterexample{-1, fmt::format("a rank that resumes opens {} files, and the limit of a process is {}: "
                                          "raise it (ulimit -n)",
                                          needs.open_files, limits.open_files)};
  if (exceeds(needs.maps, limits.maps))
    return Counterexample{-1, fmt::format("a rank that resumes has {} maps, and the limit of a process is {}: raise "
                                          "it (sysctl vm.max_map_count)",
                                          needs.maps, limits.maps)};
  if (exceeds(needs.shared_bytes, limits.shared_bytes))
    return Counterexample{-1, fmt::format("ranks of one host share {} in /dev/shm, and {} are free there: make it "
                                          "larger (mount -o remount,size=...)",
                                          format_bytes(needs.shared_bytes), format_bytes(limits.shared_bytes))};
  return std::nullopt;
}

std::string describe_needs(const MachineNeeds& needs, const MachineLimits& limits) {
  const auto of = [](int64_t limit, const std::string& text) { return limit < 0 ? "no limit" : text; };
  return fmt::format(
      "{}{} checkpoint{} of {} and {} of weights in {} of disk; {} files of {}; {} open files of {}, {} maps of {}{}",
      needs.all_kept ? "" : "the first of ", needs.kept, needs.kept == 1 ? "" : "s",
      format_bytes(needs.checkpoint_bytes), format_bytes(needs.export_bytes),
      of(limits.disk_bytes, format_bytes(limits.disk_bytes)), needs.inodes(),
      of(limits.inodes, std::to_string(limits.inodes)), needs.open_files,
      of(limits.open_files, std::to_string(limits.open_files)), needs.maps,
      of(limits.maps, std::to_string(limits.maps)),
      needs.shared_bytes == 0 ? ""
                              : fmt::format("; {} of {} in /dev/shm", format_bytes(needs.shared_bytes),
                                            of(limits.shared_bytes, format_bytes(limits.shared_bytes))));
}

}  // namespace nought
