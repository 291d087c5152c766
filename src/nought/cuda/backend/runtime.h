// Calls of CUDA's runtime and what they fail with: one Error that says what was asked for, by CUDA's name and words.
#pragma once

#include <string>
#include <string_view>

#include <cuda_runtime.h>

#include "nought/base/error.h"

namespace nought::cuda {

/// DeviceError "CUDA: what: cudaErrorName (its words)" unless the call succeeded.
void check(cudaError_t result, std::string_view what);

/// Why no device can be used on this machine, in one line; empty if one can.
std::string why_no_device();

}  // namespace nought::cuda
