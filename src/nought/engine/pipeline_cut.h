// How a run's model is cut into pipeline stages, in words and for the model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nought/config/run_plan.h"
#include "nought/models/config.h"
#include "nought/parallel/pipeline_ranks.h"

namespace nought {

/// How a run on sequences of so many tokens cuts its model into pipeline stages. Where they have the same time, and
/// none was measured (with_stage_seconds() of measure/stage_seconds.h), it is that of FLOPs.
PipelineCut pipeline_cut_of(const Pipeline& pipeline, const ModelConfig& config, int64_t seq_length);
PipelineCut pipeline_cut_of(const RunPlan& plan, const ModelConfig& config);
/// ConfigError, with the nearest pp_size that works, unless the model has a Unit for each stage, and what
/// stage_begins() throws.
void require_stages(const RunPlan& plan, const ModelConfig& config);

/// What a pipeline stage has of a model.
struct StageSummary {
  std::string first, last;  // its Units, by name
  int64_t units = 0;
  double parameters = 0;  // elements; the last one reads the table of a tied model, too
  double share = 0;       // of the model's work: of the measured time, or of the FLOPs
};
std::vector<StageSummary> summarize_stages(const ModelConfig& config, const Pipeline& pipeline, int64_t seq_length);

/// describe_mesh(), and describe_stages().
std::vector<std::string> describe_layout(const RunPlan& plan, const ModelConfig& config);
/// What is balanced, and a line for each pipeline stage: its Units, their parameters, and their share of the work.
/// Nothing if there is one stage.
std::vector<std::string> describe_stages(const ModelConfig& config, const Pipeline& pipeline, int64_t seq_length);

}  // namespace nought
