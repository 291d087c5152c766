// Kernels that put every operation on a timeline.
#pragma once

#include "nought/kernels/kernels.h"
#include "nought/tensor/timeline.h"

namespace nought {

/// Runs `inner`, and records when each operation began and ended while the timeline records.
std::unique_ptr<Kernels> make_timed_kernels(std::shared_ptr<Kernels> inner, std::shared_ptr<Timeline> timeline);

}  // namespace nought
