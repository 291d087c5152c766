// Processes by what their environment says, whichever of them started which.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "support/temp_folder.h"
#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

namespace nought::test {

/// The processes that have all of the lines ("NAME=value") in their environment.
inline std::vector<pid_t> processes_with(const std::string& variable, const std::string& another = "") {
  std::vector<pid_t> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string environment = read_bytes(entry.path() / "environ");
    if (environment.find(variable) != std::string::npos && environment.find(another) != std::string::npos)
      found.push_back(std::stoi(name));
  }
  return found;
}

/// Starts a program with such a line in its environment. The folder has its temporary files in "tmp", and in "log" what
/// it says.
inline pid_t start_tagged(std::vector<std::string> words, std::string& variable, const std::filesystem::path& folder) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t child = fork();
  if (child != 0) return child;
  putenv(variable.data());
  setenv("TMPDIR", (folder / "tmp").c_str(), 1);
  const int log = open((folder / "log").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  dup2(open("/dev/null", O_RDONLY), 0), dup2(log, 1), dup2(log, 2);
  execv(arguments[0], arguments.data());
  _exit(127);
}

}  // namespace nought::test
