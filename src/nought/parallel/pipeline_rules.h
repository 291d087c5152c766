// The pipeline schedules by torch's names, and what each requires of stages and micro-batches.
#pragma once

#include <cstdint>
#include <string_view>

namespace nought {

enum class PipelineSchedule : uint8_t {
  gpipe,        // GPipe (arXiv 1811.06965): all forward passes, then all backward passes
  one_f_one_b,  // 1F1B (arXiv 1806.03377): a forward and a backward pass in turn
  interleaved,  // Interleaved1F1B (arXiv 2104.04473): several stages per rank, dealt like cards
  zbh1,         // ZBH1 (arXiv 2401.10241): 1F1B whose weight gradients fill what would be idle
  zbv,          // ZBVZeroBubble (arXiv 2401.10241): two stages per rank, the first rank has the last stage too
};

/// "GPipe", "1F1B", "Interleaved1F1B", "ZBH1", "ZBVZeroBubble".
std::string_view name_of(PipelineSchedule schedule);
/// The schedule of that name, whatever the case; ConfigError, which lists the names.
PipelineSchedule parse_pipeline_schedule(std::string_view name);

/// How ranks share the stages of a model.
struct Pipeline {
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  int64_t ranks = 1;
  int64_t chunks = 1;  // stages that each rank holds: virtual_pipeline_size
  /// True if the stages go along the ranks there and back, and not round and round.
  bool v_shaped() const { return schedule == PipelineSchedule::zbv; }
};

/// Stages per rank where none are asked for: 2 with the schedules that need several.
int64_t default_chunks(PipelineSchedule schedule);
/// ConfigError, with the nearest valid choice, if the schedule cannot run so many stages per rank.
void check_chunks(const Pipeline& pipeline);
/// The same for the micro-batches of a step. Interleaved1F1B forwards them in rounds of as many as there are ranks or
/// more, and all rounds are equal: max(1, micro_batches / ranks) has to divide micro_batches.
void check_micro_batches(const Pipeline& pipeline, int64_t micro_batches);

}  // namespace nought
