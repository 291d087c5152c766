// Attention and what is done with heads, on the device. Operands have the addresses of kernels, and have been checked.
#pragma once

#include "nought/cuda/backend/place.h"
#include "nought/kernels/ops/attention.h"

namespace nought::cuda {

// heads_start.cpp
struct HeadArray;
/// The heads, with the address of the first one.
HeadArray heads_of(const Heads& heads, int64_t head_dim);
void start(const CopyHeads& op, Place& at);
void start(const SumHeads& op, Place& at);
void start(const Rope& op, Place& at);
/// False for copies to another dtype.
bool fits(const CopyHeads& op);

// attention_start.cpp
void start(const Attention& op, Place& at);
void start(const AttentionBackward& op, Place& at);
void start(const MergeAttention& op, Place& at);
/// False for heads that are too large, and for keys and values of another dtype than the queries.
bool fits(const Attention& op);
bool fits(const AttentionBackward& op);

}  // namespace nought::cuda
