// How much of a long sweep a test runs: a sample in every test run, all of it in scripts/test-long.sh.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace nought::test {

inline bool runs_everything() { return std::getenv("NOUGHT_LONG") != nullptr; }

inline int sweep(int sample, int all) { return runs_everything() ? all : sample; }

/// Whether a case of a sweep runs, by its index: each n-th one in every test run.
inline bool samples(int64_t index, int64_t n) { return runs_everything() || index % n == 0; }

}  // namespace nought::test
