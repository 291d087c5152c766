// What is beneath a stream of the emulated runtime, for libraries that put work there.
#pragma once

#include "cuda_runtime.h"

#include "nought/tensor/stream.h"

namespace nought::emulation {

Stream& stream_of(cudaStream_t stream);

}  // namespace nought::emulation
