// What a test chooses of the emulated runtime, and what it has seen.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda_emulation/block.h"

namespace nought::emulation {

/// The order of the blocks and threads of kernels that run from now on.
void set_order(Order order);
/// How many bytes the device gives from now on, until some come back; more are refused.
void set_memory_left(size_t bytes);
/// Bytes that were written behind or before an allocation, where no page guards them; checked as memory is freed too.
/// KernelError if there are any.
void check_margins();
/// How many kernels have run so far.
int64_t kernels_run();
/// How often cuBLASLt was asked for an algorithm so far.
int heuristics_asked();

}  // namespace nought::emulation
