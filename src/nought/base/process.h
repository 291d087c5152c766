// What the system says of a process, by its number.
#pragma once

#include <cstdint>
#include <optional>

namespace nought {

struct ProcessStat {
  char state = ' ';    // a letter of proc(5): R runs, S sleeps, T is stopped by a signal, Z has ended, ...
  uint64_t start = 0;  // in clock ticks since the machine started: no later process with this number has it
};

/// From /proc/PID/stat; nullopt if there is no such process.
std::optional<ProcessStat> process_stat(int pid);

}  // namespace nought
