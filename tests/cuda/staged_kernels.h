// The kernels of CUDA as the kernel tests call them, with operands on the host.
#pragma once

#include <memory>

#include "nought/kernels/kernels.h"

namespace nought::test {

std::unique_ptr<Kernels> make_staged_kernels();

}  // namespace nought::test
