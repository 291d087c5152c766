// Kernels that put every operation on a timeline, with what it cost: for traces and for the books of a step.
#pragma once

#include "nought/kernels/kernels.h"
#include "nought/tensor/timeline.h"

namespace nought {

/// Runs `inner`, and records when each operation began and ended, its work_of() and its arguments_of(), while the
/// timeline records. An operation with a label() is named with it: "MatMul 768 x 3072 x 4096, a'".
std::unique_ptr<Kernels> make_timed_kernels(std::shared_ptr<Kernels> inner, std::shared_ptr<Timeline> timeline);

}  // namespace nought
