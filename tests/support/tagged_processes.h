// Processes by what their environment says, whichever of them started which.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "support/temp_folder.h"
#include <sys/types.h>

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

}  // namespace nought::test
