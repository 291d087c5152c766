// Over how many ranks the experts of a model can be spread, each of which holds some of them whole or in part.
#pragma once

#include <string>

#include "nought/models/config.h"

namespace nought {

/// Why so many ranks cannot hold different experts, as many of every layer's each; "" if they can.
std::string reason_not_to_spread(const ModelConfig& config, int64_t ranks);

/// ConfigError, with the nearest number that is possible, unless so many of the data-parallel ranks can hold different
/// experts: as many of every layer's each.
void require_spreadable(const ModelConfig& config, int64_t expert_ranks, int64_t data_ranks);

}  // namespace nought
