// Kernels that round inputs of products by codes to 8 bits, as llama.cpp does: a choice of generation, never of
// training.
#pragma once

#include <memory>
#include <string_view>

#include "nought/kernels/kernels.h"

namespace nought {

inline constexpr std::string_view kRoundingKernels = "cpu, inputs rounded";

/// Whether this CPU has such products: AVX2 or AVX-512.
bool can_round_inputs();
/// The CPU's kernels, but MatMul by codes of Q8_0 or by blocks of GGUF, stored transposed, rounds its rows to 8 bits
/// first (cpu/rounded_products.h). DeviceError unless can_round_inputs().
/// Their name is kRoundingKernels.
std::unique_ptr<Kernels> make_rounding_cpu_kernels();

}  // namespace nought
