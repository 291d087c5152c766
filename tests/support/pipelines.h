// Every pipeline that the tests of schedules go through.
#pragma once

#include <vector>

#include "nought/engine/pipeline_schedules.h"

namespace nought::test {

struct PipelineCase {
  Pipeline pipeline;
  int64_t micro_batches = 0;
  std::vector<StepSchedule> ranks;

  PipelineCase(const Pipeline& how, int64_t count) : pipeline(how), micro_batches(count) {
    for (int64_t rank = 0; rank < how.ranks; ++rank) ranks.push_back(pipeline_schedule(how, rank, count));
  }
  PipelineSchedule schedule() const { return pipeline.schedule; }
  /// Micro-batches in a round of Interleaved1F1B.
  int64_t round() const { return micro_batches / std::max<int64_t>(1, micro_batches / pipeline.ranks); }
  std::string str() const {
    return fmt::format("{} with {} ranks, {} micro-batches, {} chunks", name_of(pipeline.schedule), pipeline.ranks,
                       micro_batches, pipeline.chunks);
  }
};

/// All schedules on 1 to 8 ranks, of 1 to 32 micro-batches, with up to 4 chunks.
template <class Body>
void for_each_pipeline(Body body) {
  for (const PipelineSchedule schedule : {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b,
                                          PipelineSchedule::interleaved, PipelineSchedule::zbh1, PipelineSchedule::zbv})
    for (int64_t ranks = 1; ranks <= 8; ++ranks)
      for (int64_t chunks = 1; chunks <= 4; ++chunks)
        for (int64_t count = 1; count <= 32; ++count) {
          const bool interleaved = schedule == PipelineSchedule::interleaved;
          const bool runs = interleaved ? chunks > 1 && count % std::max<int64_t>(1, count / ranks) == 0
                                        : chunks == (schedule == PipelineSchedule::zbv ? 2 : 1);
          if (runs) body(PipelineCase({schedule, ranks, chunks}, count));
        }
}

}  // namespace nought::test
