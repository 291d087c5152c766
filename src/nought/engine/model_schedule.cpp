#include "nought/engine/model_schedule.h"

#include "nought/engine/pipeline_schedules.h"

namespace nought {

Schedules schedule_at(const Mesh& mesh, const Pipeline& pipeline) {
  if (pipeline.ranks == 1) return {};
  const int64_t here = mesh.coordinate(Axis::pipeline);
  return {
      [pipeline, here](int64_t micro_batches) { return pipeline_schedule(pipeline, here, micro_batches); },
      [pipeline, here](int64_t micro_batches) { return pipeline_evaluation_schedule(pipeline, here, micro_batches); }};
}

Schedules default_schedule(const Mesh& mesh) { return schedule_at(mesh, {.ranks = mesh.grid().size(Axis::pipeline)}); }

}  // namespace nought
