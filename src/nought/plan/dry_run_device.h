// The device of a dry run: like a GPU, it gives memory that the host has no access to, and streams that run in parallel
// to the host. Nothing is computed or copied, and what its streams hold is held as long as on a GPU
// (tensor/held_work.h). It takes no driver and no GPU.
#pragma once

#include <memory>

#include "nought/config/layout.h"
#include "nought/kernels/kernels.h"
#include "nought/plan/dry_run.h"

namespace nought {

/// What a rank computes with on such a GPU: memory that is only counted, kernels that count in `work` and take the
/// workspace that those of the GPU take, and the compute stream.
Context dry_run_gpu(const PlannedGpu& gpu, CountedWork& work, ChosenExperts routing = {});

}  // namespace nought
