// What of a model can be cut over the ranks of the tensor axis.
#pragma once

#include <optional>
#include <string>

#include "nought/models/config.h"

namespace nought {

/// Why that many ranks cannot share the model's matrices; "" if they can.
std::string reason_not_to_cut(const ModelConfig& config, int64_t ranks);

/// ConfigError with the reason, and with the nearest number that is possible. It divides `of`, the ranks of the whole
/// job, so that the others can read different samples; not given: they are all.
void require_cuttable(const ModelConfig& config, int64_t ranks, std::optional<int64_t> of = {});

}  // namespace nought
