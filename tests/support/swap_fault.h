// ScopedSwapFault: what the reads and writes of swap files seem to return, to all SwapSpaces that are made while it
// lives.
#pragma once

#include <utility>

#include "nought/aio/swap_call.h"

namespace nought::test {

class ScopedSwapFault {
 public:
  explicit ScopedSwapFault(SwapFault fault) : before_(exchange_swap_fault(std::move(fault))) {}
  ~ScopedSwapFault() { exchange_swap_fault(std::move(before_)); }
  ScopedSwapFault(const ScopedSwapFault&) = delete;
  ScopedSwapFault& operator=(const ScopedSwapFault&) = delete;

 private:
  SwapFault before_;
};

}  // namespace nought::test
