#include "nought/train/model_schedule.h"

#include "nought/train/pipeline_schedules.h"

namespace nought {

namespace {

/// Stages that go there and back are told by where they turn, and by the first rank, which then has the last stage.
Pipeline pipeline_of(const ShardedModel& model) {
  const std::vector<Chunk> chunks = model.model().chunks();
  const int ranks = model.mesh().grid().size(Axis::pipeline), here = model.mesh().coordinate(Axis::pipeline);
  Pipeline pipeline{.ranks = ranks, .chunks = std::ssize(chunks)};
  if (chunks.size() == 1) return pipeline;
  const bool v = here == 0           ? chunks.back().last()
                 : here + 1 == ranks ? chunks[1].from == here
                                     : chunks[0].to == chunks[1].from;
  pipeline.schedule = v ? PipelineSchedule::zbv : PipelineSchedule::interleaved;
  return pipeline;
}

}  // namespace

MakeSchedule default_schedule(const ShardedModel& model) {
  if (model.mesh().grid().size(Axis::pipeline) == 1) return plain_schedule;
  return schedule_at(model.mesh(), pipeline_of(model));
}

MakeSchedule schedule_at(const Mesh& mesh, const Pipeline& pipeline) {
  if (pipeline.ranks == 1) return plain_schedule;
  return [pipeline, here = mesh.coordinate(Axis::pipeline)](int64_t micro_batches) {
    return pipeline_schedule(pipeline, here, micro_batches);
  };
}

StepSchedule evaluation_schedule_of(const ShardedModel& model, int64_t micro_batches) {
  if (model.mesh().grid().size(Axis::pipeline) == 1) return evaluation_schedule(micro_batches);
  return pipeline_evaluation_schedule(pipeline_of(model), model.mesh().coordinate(Axis::pipeline), micro_batches);
}

}  // namespace nought
