// How much of a long sweep a test runs: a sample in every test run, all of it in scripts/test-long.sh.
#pragma once

#include <cstdlib>

namespace nought::test {

inline bool runs_everything() { return std::getenv("NOUGHT_LONG") != nullptr; }

inline int sweep(int sample, int all) { return runs_everything() ? all : sample; }

}  // namespace nought::test
