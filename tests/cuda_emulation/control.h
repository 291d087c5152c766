// What a test chooses of the emulated runtime, and what it has seen.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda_emulation/block.h"

namespace nought::emulation {

/// How many devices there are from now on: 1 at first. They share their memory, and are told apart by number.
void set_devices(int count);
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
/// How many collectives and groups of messages NCCL was given so far, by all ranks.
int64_t nccl_launches();
/// How many groups of NCCL there are now, ends of ranks counted.
int nccl_ends();

}  // namespace nought::emulation
