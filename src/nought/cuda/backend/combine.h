// What ranks combine, element by element, in their order: kernels that collectives call.
#pragma once

#include <span>

#include "nought/cuda/backend/launch.h"

namespace nought::cuda {

/// out[i] = the greatest or the least of inputs[k][i]; a NaN in any of them gives a NaN. At most kMostInputs.
void extremes(const Launch& where, std::span<const Array> inputs, Array out, bool greatest, int64_t n);

}  // namespace nought::cuda
