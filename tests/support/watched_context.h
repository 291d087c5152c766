// A Context whose results a test sees, and may change.
#pragma once

#include <utility>

#include "nought/kernels/watch.h"

namespace nought::test {

inline Context watched(const Context& plain, Watcher watcher) {
  return {plain.memory, make_watching_kernels(plain.kernels, std::move(watcher)), plain.stream};
}

}  // namespace nought::test
