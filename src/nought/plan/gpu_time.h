// gpu_step_time(): the seconds of a step on GPUs that need not be here, by their rates and by what is predicted of its
// work and transfers.
//
// Design goals: the work is counted by the dry run of this program's own operations; of the GPU only its rates are
// known, and no operation has a rate of its own. Products take what their operations take at the rate of large ones,
// and their operands come and go besides: this alone makes small products slower. Everything else is as fast as memory.
// Transfers run beside the passes as far as the code lets them.
// Non-goals: networks between hosts, files.
#pragma once

#include <vector>

#include "nought/plan/gpu_rates.h"
#include "nought/plan/step_time.h"

namespace nought {

/// What a step takes at the slowest of these places of a pipeline (predict_places(), of a layout on GPUs that exchange
/// tensors directly), with the tokens per second of all ranks, MFU, and what takes most of it.
StepTime gpu_step_time(const ModelConfig& config, const std::vector<Prediction>& places, const GpuRates& gpu);

}  // namespace nought
