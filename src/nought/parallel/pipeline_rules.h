// The pipeline schedules by torch's names, what each requires of stages and micro-batches, and how stages are cut.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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

/// How the Units of a model are shared out: each stage gets neighbouring ones. See stage_begins() of models/stages.h.
struct StagePartition {
  std::string method = "parameters";      // or "uniform", "type:REGEX", "profile"
  int64_t first_less = 1, last_less = 1;  // "uniform": as so many layers the embedding and the head count
  std::vector<double> costs = {};         // "profile": what each Unit costs, in any unit of time or work
  bool measured = false;                  // the costs are seconds that were measured
  bool balances_costs() const { return method == "profile"; }
};
/// The method that a name means: "best", DeepSpeed's default, is "parameters". ConfigError unless it is one of those.
std::string parse_partition(const std::string& name);
/// The expression in "type:REGEX", which heeds no case; empty for other methods.
std::string type_pattern(const std::string& method);

/// How ranks share the stages of a model.
struct Pipeline {
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  int64_t ranks = 1;
  int64_t chunks = 1;  // stages that each rank holds: virtual_pipeline_size
  StagePartition partition = {};
  int64_t stages() const { return ranks * chunks; }
  /// True if the stages go along the ranks there and back, and not round and round.
  bool v_shaped() const { return schedule == PipelineSchedule::zbv; }
};

/// Stages per rank where none are asked for: 2 with the schedules that need several.
int64_t default_chunks(PipelineSchedule schedule);
/// ConfigError, with the nearest valid choice, if the schedule cannot run so many stages per rank.
void check_chunks(const Pipeline& pipeline);
/// ConfigError unless the schedule can run the micro-batches of a step. Interleaved1F1B forwards them in rounds of as
/// many as there are ranks or more, and all rounds are equal: max(1, micro_batches / ranks) has to divide
/// micro_batches.
void check_micro_batches(const Pipeline& pipeline, int64_t micro_batches);

}  // namespace nought
