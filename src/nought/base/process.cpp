#include "nought/base/process.h"

#include <array>
#include <cstdio>
#include <memory>
#include <string_view>

#include <fmt/format.h>

namespace nought {

std::optional<ProcessStat> process_stat(int pid) {
  const std::string path = fmt::format("/proc/{}/stat", pid);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"), std::fclose);
  if (!file) return std::nullopt;
  std::array<char, 1024> bytes{};
  const size_t count = std::fread(bytes.data(), 1, bytes.size() - 1, file.get());
  const size_t name_end = std::string_view(bytes.data(), count).rfind(") ");  // the name may hold anything
  if (name_end == std::string_view::npos) return std::nullopt;
  char state = ' ';
  unsigned long long start = 0;  // field 22; the state is the third
  const int fields =
      std::sscanf(bytes.data() + name_end + 2,
                  "%c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu", &state, &start);
  if (fields != 2) return std::nullopt;
  return ProcessStat{state, start};
}

}  // namespace nought
