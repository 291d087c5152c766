// Runs a program as a user's shell would, without a terminal, and returns what it printed and how it ended.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

namespace nought {

struct Ended {
  int exit_code = 0;  // 124: it ran for more than the limit of 60 seconds
  std::string out, err;

  int error_lines() const { return static_cast<int>(std::count(err.begin(), err.end(), '\n')); }
};

inline std::string read_text(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// `command` is a shell's: the caller quotes what needs it. `limit`: options and time of timeout(1).
inline Ended run_program(const std::string& command, const std::string& limit = "60") {
  std::string folder = (std::filesystem::temp_directory_path() / "nought-test-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return {-1, "", "cannot make " + folder};
  const int status = std::system(
      fmt::format("timeout --kill-after=15 {1} {0} </dev/null >{2}/out 2>{2}/err", command, limit, folder).c_str());
  Ended ended{WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_text(folder + "/out"),
              read_text(folder + "/err")};
  std::filesystem::remove_all(folder);
  return ended;
}

}  // namespace nought
