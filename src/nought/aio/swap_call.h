// SwapFault: where tests make reads and writes of swap files fail.
#pragma once

#include <cstdint>
#include <functional>

#include "nought/aio/options.h"

namespace nought {

struct SwapCall {
  bool write;
  int64_t offset, bytes;
  int64_t result;  // bytes, or a negative errno
};

/// Sees what the system says of a read or write, and returns what is believed.
using SwapFault = std::function<int64_t(const SwapCall&)>;

/// The seam of tests: every SwapSpace that is made from now on has this fault. Returns the one before.
SwapFault exchange_swap_fault(SwapFault fault);

}  // namespace nought
