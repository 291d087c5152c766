#include "nought/base/process.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "nought/base/open_file.h"

namespace nought {

std::optional<ProcessStat> process_stat(int pid) {
  const std::string bytes = system_text(fmt::format("/proc/{}/stat", pid));
  const size_t name_end = bytes.rfind(") ");  // the name may hold anything
  if (name_end == std::string::npos) return std::nullopt;
  char state = ' ';
  int parent = 0;
  unsigned long long start = 0;  // field 22; the state is the third
  const int fields = std::sscanf(bytes.c_str() + name_end + 2,
                                 "%c %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
                                 &state, &parent, &start);
  if (fields != 3) return std::nullopt;
  return ProcessStat{state, parent, start};
}

std::vector<int> descendants_of(int pid) {
  std::multimap<int, int> children;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    if (name.empty() || name.find_first_not_of("0123456789") != std::string::npos) continue;
    const int child = std::atoi(name.c_str());
    if (const std::optional<ProcessStat> stat = process_stat(child)) children.emplace(stat->parent, child);
  }
  std::vector<int> found{pid};
  for (size_t i = 0; i < found.size(); ++i) {
    const auto [first, last] = children.equal_range(found[i]);
    for (auto it = first; it != last; ++it) found.push_back(it->second);
  }
  found.erase(found.begin());
  return found;
}

}  // namespace nought
