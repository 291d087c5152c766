// How much of a long sweep a test runs: a sample in every test run, all of it in scripts/test-long.sh.
#pragma once

#include <cstdlib>

namespace nought::test {

inline int sweep(int sample, int all) { return std::getenv("NOUGHT_LONG") != nullptr ? all : sample; }

}  // namespace nought::test
