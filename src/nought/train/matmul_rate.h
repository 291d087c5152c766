// The rate of matrix products on this machine, measured: the limit that MFU is a fraction of.
#pragma once

#include "nought/comm/communicator.h"

namespace nought {

/// FLOP/s of all ranks together in square products of 1024, the best of several while all ranks run. Collective.
double measure_matmul_rate(Communicator& ranks, const Context& context, DType dtype);

}  // namespace nought
