// What a ZeRO stage costs where a pipeline's micro-batches make it reduce and gather again and again.
#pragma once

#include <string>

#include "nought/plan/predict.h"

namespace nought {

/// One line for a prediction of stage 2 or 3 with pipeline ranks: what the rank sends in a step, and what it would at
/// stage 1, which reduces once. Empty for others, and where nothing is sharded.
std::string describe_zero_cost(const ModelConfig& config, const Prediction& prediction);

}  // namespace nought
