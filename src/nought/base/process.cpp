#include "nought/base/process.h"

#include <cstdio>
#include <string>

#include <fmt/format.h>

#include "nought/base/open_file.h"

namespace nought {

std::optional<ProcessStat> process_stat(int pid) {
  const std::string bytes = system_text(fmt::format("/proc/{}/stat", pid));
  const size_t name_end = bytes.rfind(") ");  // the name may hold anything
  if (name_end == std::string::npos) return std::nullopt;
  char state = ' ';
  unsigned long long start = 0;  // field 22; the state is the third
  const int fields =
      std::sscanf(bytes.c_str() + name_end + 2,
                  "%c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu", &state, &start);
  if (fields != 2) return std::nullopt;
  return ProcessStat{state, start};
}

}  // namespace nought
