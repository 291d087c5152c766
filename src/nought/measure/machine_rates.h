// MachineRates: what was measured of a rank on this machine, while the other ranks of the run were as busy.
#pragma once

#include <string>

namespace nought {

/// How the ranks of this host share its cores.
struct SharedCores {
  int threads = 1;   // threads of a rank
  double share = 1;  // threads of all ranks for each core
};

struct MachineRates {
  double flops = 0;            // FLOP/s of a product in the dtype of the model
  double memory = 0;           // B/s
  double read = 0, write = 0;  // B/s of files; 0: not measured
  std::string note = {};       // why they were not, if they matter
  int threads = 1;             // threads of a rank
  double operation = 0;        // seconds that the host takes for an operation, besides computing it
  double call = 0;             // seconds of a collective of a few bytes behind work
  double gathered = 0;         // B/s that a rank sends in an all_gather; 0: one rank, or not measured
  double reduced = 0;          // and in a reduce_scatter
  /// Threads of ranks for each core of a machine, where these are more than its cores: a rank waits for the others.
  double share = 1;
  /// Repeated measurements were so much faster and slower than their median.
  double fastest = 1, slowest = 1;
  bool busy = false;  // other programs took the cores meanwhile
};

}  // namespace nought
