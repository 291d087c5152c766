// The cores of the machine, and how ranks share them.
#pragma once

namespace nought {

/// Numbers of physical cores.
struct Cores {
  int machine = 1;  // the cores of the machine
  int usable = 1;   // those that this process may use; a limit on processor time (cgroup) counts too
};
Cores find_cores();

/// OpenMP threads for each of `local_ranks` ranks that share the machine, at least 1. A rank that is bound to cores
/// uses these. Ranks that are not bound divide the cores.
int divide_cores(const Cores& cores, int local_ranks);

/// The part of a core that each of so many busy threads gets, at most 1.
double cores_for_each(const Cores& cores, int threads);

}  // namespace nought
