#include "nought/cli/launch_session.h"

#include <cstdlib>
#include <utility>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nought/base/open_file.h"
#include "nought/base/process.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

constexpr const char* kSessionLock = "lock";

std::string prefix_of_user() { return fmt::format("nought-{}-", ::getuid()); }

/// Whether the folder is one of this user's, and its launcher has ended.
bool is_left(const fs::path& path) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0 || !S_ISDIR(found.st_mode) || found.st_uid != ::getuid()) return false;
  // The lock is older than the name (see add()), so a folder without it is one that was not wholly removed.
  return FileLock(path / kSessionLock, "").state() == FileLock::State::held;
}

}  // namespace

LaunchSession::Roots LaunchSession::Roots::usual() {
  std::error_code ignored;
  return {fs::temp_directory_path(ignored), "/dev/shm"};
}

LaunchSession::LaunchSession(const Roots& roots) {
  add(roots.temporary, "OMPI_MCA_orte_tmpdir_base");
  add(roots.shared, "OMPI_MCA_btl_vader_backing_directory");
}

void LaunchSession::add(const fs::path& root, const char* variable) {
  if (root.empty() || std::getenv(variable) != nullptr) return;
  const std::optional<ProcessStat> stat = process_stat(::getpid());
  const fs::path path = root / fmt::format("{}{}-{}", prefix_of_user(), ::getpid(), stat ? stat->start : 0);
  const fs::path unnamed = root / fmt::format(".{}", path.filename().string());
  if (::mkdir(unnamed.c_str(), 0700) != 0) return;
  FileLock lock(unnamed / kSessionLock, this_process());
  std::error_code error;
  if (lock.state() == FileLock::State::held) fs::rename(unnamed, path, error);  // nobody sees it without its lock
  if (lock.state() != FileLock::State::held || error) {
    fs::remove_all(unnamed, error);
    return;
  }
  folders_.push_back({path, std::move(lock), variable});
}

LaunchSession::~LaunchSession() {
  std::error_code ignored;  // a later start removes what is left
  for (const Folder& folder : folders_) fs::remove_all(folder.path, ignored);
}

std::vector<std::string> LaunchSession::environment() const {
  std::vector<std::string> variables;
  for (const Folder& folder : folders_)
    variables.push_back(fmt::format("{}={}", folder.variable, folder.path.string()));
  return variables;
}

std::vector<std::string> LaunchSession::remove_left(const Roots& roots) {
  std::vector<std::string> removed;
  for (const fs::path& root : {roots.temporary, roots.shared}) {
    std::error_code error;
    for (const fs::directory_entry& entry : entries_of(root, error)) {
      const fs::path& path = entry.path();
      if (!path.filename().string().starts_with(prefix_of_user()) || !is_left(path)) continue;
      std::error_code failed;
      fs::remove_all(path, failed);
      if (!failed) removed.push_back(path.string());
    }
  }
  return removed;
}

}  // namespace nought
