// LaunchSession: where mpirun and its ranks on this machine keep the files of a job: session files below the temporary
// folder, shared memory in /dev/shm.
//
// Each start has folders of its own there, nought-UID-PID-START, with a lock that ends with the launcher. mpirun that
// is killed leaves its files, and nobody could tell whose they are; of our own folders a later start can.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "nought/io/file_lock.h"

namespace nought {

class LaunchSession {
 public:
  /// The temporary folder, and where shared memory lies.
  struct Roots {
    std::filesystem::path temporary, shared;
    static Roots usual();
  };

  /// Makes the folders. One that cannot be made is left out: mpirun then does as it does by itself.
  explicit LaunchSession(const Roots& roots = Roots::usual());
  /// Removes them.
  ~LaunchSession();
  LaunchSession(const LaunchSession&) = delete;
  LaunchSession& operator=(const LaunchSession&) = delete;

  /// What tells mpirun of the folders: "NAME=value" for each variable that the user did not set.
  std::vector<std::string> environment() const;

  /// Removes the folders of launchers of this user that have ended without removing them. Returns their paths.
  static std::vector<std::string> remove_left(const Roots& roots = Roots::usual());

 private:
  struct Folder {
    std::filesystem::path path;
    FileLock lock;
    const char* variable;  // by which mpirun is told
  };
  void add(const std::filesystem::path& root, const char* variable);

  std::vector<Folder> folders_;
};

}  // namespace nought
