// Where a model is cut into pipeline stages: each gets neighbouring Units.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nought/models/config.h"
#include "nought/parallel/pipeline_rules.h"

namespace nought {

/// The first Unit of each stage, and behind them the number of Units. Stages of as many layers each, the first ones
/// with one more where that does not divide; the embedding counts as `first_less` layers of the first stage, and the
/// head as `last_less` of the last (torchtitan's pipeline_parallel_first_stage_less_layers and
/// pipeline_parallel_last_stage_less_layers). With 1 and 1, stages have as many Units each. ConfigError, with the
/// nearest numbers that work, if one of them is more than a stage's layers, or if these are none.
std::vector<size_t> cut_by_layers(int64_t layers, int stages, int64_t first_less, int64_t last_less);
/// Cuts so that the largest sum of weights of a stage is as small as it can be. Every stage has a Unit. Among such cuts
/// it is the one whose last stages are largest.
std::vector<size_t> cut_by_weight(std::span<const double> weights, int stages);

/// The most stages that a model can be cut into: its Units.
int64_t most_stages(const ModelConfig& config);
/// The cut of a model's Units (the embedding, each block, the head). "parameters" balances their elements; the head of
/// a tied model counts the table that it reads. "uniform" is cut_by_layers(). "type:REGEX" counts the Units in whose
/// names ("embedding", "block.3", "head") the expression is found, whatever the case: each stage has one of them or
/// more. "profile" balances the costs. ConfigError, with a choice that works.
std::vector<size_t> stage_begins(const ModelConfig& config, const StagePartition& partition, int stages);

/// What each Unit of the whole model has in parameters; the head of a tied model with the table that it reads.
std::vector<double> unit_parameters(const ModelConfig& config);
/// "profile" with costs: FLOPs, where nobody has measured. seq_length: tokens; 0: as many as the model knows.
StagePartition with_costs(StagePartition partition, const ModelConfig& config, int64_t seq_length);

}  // namespace nought
