// What the passes of a pipeline take: modelled by their FLOPs, or measured in a trace.
#pragma once

#include <functional>
#include <vector>

#include "nought/engine/pipeline_timeline.h"
#include "nought/plan/predict.h"

namespace nought {

/// What the work of the passes of a micro-batch through each stage of the model costs, recomputation included; `cost`
/// is additive. The passes run on kernels that compute nothing, as in predict().
std::vector<PassTimes> modelled_times(const ModelConfig& config, const Layout& layout,
                                      const std::function<double(const CountedWork&)>& cost);
/// Their FLOPs, divided by `rate`, FLOP/s of a rank.
std::vector<PassTimes> modelled_times(const ModelConfig& config, const Layout& layout, double rate);
/// The seconds of these passes by what operations take, the host's work included.
std::vector<PassTimes> modelled_times(const ModelConfig& config, const Layout& layout, OperationTimes& times);
/// The means of the passes of each stage. Where weight gradients are no passes of their own, backward has them.
std::vector<PassTimes> mean_times(const PipelineTimeline& timeline, const Pipeline& pipeline);

}  // namespace nought
