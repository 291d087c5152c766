// generation_mesh(): how the ranks that generate together share one model.
#pragma once

#include <cstdint>
#include <optional>

#include "nought/comm/grid.h"
#include "nought/models/config.h"

namespace nought {

/// What the options of a command ask for.
struct GenerationSizes {
  std::optional<int64_t> tensor = {};    // ranks that share matrices; not given: what the others leave
  std::optional<int64_t> pipeline = {};  // ranks that hold different layers; not given: 1, or what --tp and --ep leave
  int64_t experts = 1;                   // ranks that hold different experts
};

/// The mesh of so many ranks: their number is the product of the three sizes. ConfigError, with the nearest choice that
/// works, if the model cannot be shared so.
GridSizes generation_mesh(const ModelConfig& config, int ranks, const GenerationSizes& asked);

}  // namespace nought
