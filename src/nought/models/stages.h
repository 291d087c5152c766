// Where a model is cut into pipeline stages: each gets neighbouring Units.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "nought/models/config.h"

namespace nought {

/// The first Unit of each stage, and behind them the number of Units: stages of as many Units each, the first ones with
/// one more where that does not divide. ConfigError if there are fewer Units than stages.
std::vector<size_t> cut_uniformly(size_t units, int stages);
/// The same, so that the largest sum of weights of a stage is as small as it can be. Every stage has a Unit. Among such
/// cuts it is the one whose last stages are largest.
std::vector<size_t> cut_by_weight(std::span<const double> weights, int stages);

/// The cut of a model's Units (the embedding, each block, the head) by DeepSpeed's names: "parameters" balances their
/// elements; the head of a tied model counts the table that it reads. "best" is that, too. "uniform" counts Units.
/// "type:REGEX" counts the Units whose names ("embedding", "block.3", "head") the expression is found in, whatever the
/// case. ConfigError.
std::vector<size_t> stage_begins(const ModelConfig& config, const std::string& partition, int stages);
/// ConfigError unless the name is one of those.
void check_partition(const std::string& partition);

}  // namespace nought
