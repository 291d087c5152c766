// How long the threads of OpenMP wait actively for each other.
//
// libgomp lets a thread that waits try 300,000 times before it sleeps, which is longer than a slice of the scheduler.
// On a machine with other work the waiting threads then take the cores from the threads that they wait for, at every
// kernel. A bound of some hundred microseconds covers what lies between two kernels, and leaves the core after that:
// 5,000 tries are as fast as 300,000 on an idle machine, and 1,000 lose 3 to 7% (docs/performance.md). libgomp reads
// the bound from the environment before main() begins.
#pragma once

#include <string>
#include <vector>

namespace nought {

/// The variables of libgomp. A user who sets one of them has decided.
inline constexpr const char* kSpinVariable = "GOMP_SPINCOUNT";
inline constexpr const char* kWaitPolicyVariable = "OMP_WAIT_POLICY";
/// What the launcher sets the first one to.
inline constexpr const char* kSpinRounds = "5000";

/// Puts the bound into the environment and starts this program again in this process, with the same arguments, unless
/// the bound is there, the user has decided, or there is one thread. If the system refuses, all stays as it is.
void bound_openmp_waiting(const std::string& program, const std::vector<std::string>& arguments, int threads);

}  // namespace nought
