// Runs a program as a user's shell would, without a terminal, and returns what it printed and how it ended.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <string>

#include "support/temp_folder.h"
#include <fmt/format.h>
#include <sys/wait.h>

namespace nought::test {

struct Ended {
  int exit_code = 0;  // 124: it ran for more than the limit of 60 seconds
  std::string out, err;

  int error_lines() const { return static_cast<int>(std::count(err.begin(), err.end(), '\n')); }
};

/// `command` is a shell's: the caller quotes what needs it. `limit`: options and time of timeout(1).
inline Ended run_program(const std::string& command, const std::string& limit = "60") {
  const TempFolder folder;
  const int status = std::system(fmt::format("timeout --kill-after=15 {1} {0} </dev/null >{2}/out 2>{2}/err", command,
                                             limit, folder.path().string())
                                     .c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_bytes(folder / "out"),
          read_bytes(folder / "err")};
}

}  // namespace nought::test
