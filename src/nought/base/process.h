// What the system says of a process, by its number.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace nought {

struct ProcessStat {
  char state = ' ';  // a letter of proc(5): R runs, S sleeps, T is stopped by a signal, Z has ended, ...
  int parent = 0;
  uint64_t start = 0;  // in clock ticks since the machine started: no later process with this number has it
};

/// From /proc/PID/stat; nullopt if there is no such process.
std::optional<ProcessStat> process_stat(int pid);

/// The processes that it started, those that these started, and so on, as far as /proc shows them now.
std::vector<int> descendants_of(int pid);

}  // namespace nought
