// Sums and differences of Traffic, number by number.
#pragma once

#include <cstdint>

#include "nought/comm/communicator.h"

namespace nought {

/// sum += factor * more.
inline void add(Traffic& sum, const Traffic& more, int64_t factor = 1) {
  for (size_t i = 0; i < sum.counts.size(); ++i) {
    sum.counts[i].bytes += factor * more.counts[i].bytes;
    sum.counts[i].elements += factor * more.counts[i].elements;
    sum.counts[i].calls += factor * more.counts[i].calls;
  }
}

inline Traffic operator-(Traffic a, const Traffic& b) {
  add(a, b, -1);
  return a;
}

}  // namespace nought
