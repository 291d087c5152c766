#include "nought/cli/own_program.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "nought/base/error.h"

namespace fs = std::filesystem;

namespace nought {

namespace {

fs::path mark_of(const fs::path& prefix) { return prefix / "share" / "nought" / "package"; }

}  // namespace

std::string own_program() {
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
  const int reason = errno;
  require<IoError>(length > 0, "cannot find this program's own file: {}", std::strerror(reason));
  return path.data();
}

fs::path package_folder() {
  const fs::path folder = fs::path(own_program()).parent_path();
  // bin/nought, or lib/nought/nought behind a script in bin.
  for (fs::path prefix : {folder.parent_path(), folder.parent_path().parent_path()})
    if (std::error_code ignored; fs::exists(mark_of(prefix), ignored)) return prefix;
  return "";
}

std::string own_package() {
  const fs::path folder = package_folder();
  std::string name;
  if (!folder.empty()) std::getline(std::ifstream(mark_of(folder)) >> std::ws, name);
  return name;
}

}  // namespace nought
