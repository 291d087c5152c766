#include "nought/engine/pipeline_cut.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "nought/base/text.h"
#include "nought/models/context_choice.h"
#include "nought/models/stages.h"

namespace nought {

namespace {

std::string unit_name(size_t unit, size_t units) {
  return unit == 0 ? "embedding" : unit + 1 == units ? "head" : fmt::format("block.{}", unit - 1);
}

std::string milliseconds(double seconds) { return fmt::format("{:.3g} ms", 1e3 * seconds); }

/// "embedding 0.1 ms, blocks 3.2 to 3.4 ms, head 2.1 ms"
std::string times_of(std::span<const double> seconds) {
  std::string text = "embedding " + milliseconds(seconds.front());
  const std::span<const double> blocks = seconds.subspan(1, seconds.size() - 2);
  if (!blocks.empty()) {
    const auto [least, most] = std::minmax_element(blocks.begin(), blocks.end());
    text += *least == *most ? fmt::format(", each block {}", milliseconds(*least))
                            : fmt::format(", blocks {} to {}", milliseconds(*least), milliseconds(*most));
  }
  return text + ", head " + milliseconds(seconds.back());
}

/// What the cut balances.
std::string describe_partition(const StagePartition& partition) {
  if (!partition.balances_costs()) return fmt::format("cut by \"{}\"", partition.method);
  return partition.measured ? "cut by measured time: " + times_of(partition.costs)
                            : "cut by FLOPs; a run measures the time of its Units instead";
}

}  // namespace

PipelineCut pipeline_cut_of(const Pipeline& pipeline, const ModelConfig& config, int64_t seq_length) {
  PipelineCut cut = cut_of(pipeline);
  if (pipeline.ranks > 1) cut.partition = with_costs(std::move(cut.partition), config, seq_length);
  return cut;
}

PipelineCut pipeline_cut_of(const RunPlan& plan, const ModelConfig& config) {
  return pipeline_cut_of(plan.layout.pipeline, config, plan.layout.seq_length);
}

void require_stages(const RunPlan& plan, const ModelConfig& config) {
  const Pipeline& pipeline = plan.layout.pipeline;
  if (pipeline.ranks == 1) return;
  const int64_t units = most_stages(config),
                shared = plan.layout.ranks / plan.layout.tensor_ranks / plan.layout.context_ranks;
  int64_t nearest = 1;
  for (int64_t ranks = 1; ranks < pipeline.ranks; ++ranks)
    if (shared % ranks == 0 && ranks * pipeline.chunks <= units) nearest = ranks;
  require<ConfigError>(
      pipeline.stages() <= units,
      "training.parallelism_config.pp_size = {} with {} per rank: {} stages, each of which needs a "
      "Unit, and the model has {} (the embedding, {} blocks and the head); the nearest size that works "
      "is {}",
      pipeline.ranks, pipeline.chunks == 1 ? "a stage" : fmt::format("{} stages", pipeline.chunks), pipeline.stages(),
      units, config.num_layers, nearest);
  stage_begins(config, pipeline_cut_of(plan, config).partition, static_cast<int>(pipeline.stages()));
}

std::vector<StageSummary> summarize_stages(const ModelConfig& config, const Pipeline& pipeline, int64_t seq_length) {
  const StagePartition partition = with_costs(pipeline.partition, config, seq_length);
  const std::vector<size_t> begins = stage_begins(config, partition, static_cast<int>(pipeline.stages()));
  const std::vector<double> parameters = unit_parameters(config);
  const std::vector<double> work =
      partition.measured ? partition.costs : with_costs({.method = "profile"}, config, seq_length).costs;
  const double all = std::accumulate(work.begin(), work.end(), 0.0);
  std::vector<StageSummary> stages;
  for (size_t stage = 0; stage + 1 < begins.size(); ++stage) {
    const size_t first = begins[stage], end = begins[stage + 1], units = begins.back();
    StageSummary summary{.first = unit_name(first, units), .last = unit_name(end - 1, units)};
    summary.units = static_cast<int64_t>(end - first);
    for (size_t unit = first; unit < end; ++unit)
      summary.parameters += parameters[unit], summary.share += work[unit] / all;
    stages.push_back(std::move(summary));
  }
  return stages;
}

std::vector<std::string> describe_stages(const ModelConfig& config, const Pipeline& pipeline, int64_t seq_length) {
  if (pipeline.ranks == 1) return {};
  const StagePartition& partition = pipeline.partition;
  std::vector<std::string> lines{
      fmt::format("{:<12} {:>4}   {}", "stages", pipeline.stages(), describe_partition(partition))};
  for (const StageSummary& stage : summarize_stages(config, pipeline, seq_length))
    lines.push_back(fmt::format("stage {:<6} {:>4}   Units: {}{}, {} parameters, {:.0f}% of the {}", lines.size() - 1,
                                stage.units, stage.first, stage.units == 1 ? "" : " to " + stage.last,
                                format_count(stage.parameters), 100 * stage.share,
                                partition.measured ? "time" : "FLOPs"));
  return lines;
}

std::vector<std::string> describe_layout(const RunPlan& plan, const ModelConfig& config) {
  std::vector<std::string> lines = describe_mesh(plan);
  if (plan.layout.context_ranks > 1) {
    const ContextChoice choice =
        choose_context_method(config, plan.layout.context_ranks, plan.layout.tensor_ranks, plan.layout.context_method);
    lines.push_back(fmt::format("{:<12} {:>4}   {}: {}", "sequences", plan.layout.context_ranks, name_of(choice.method),
                                choice.reason));
  }
  for (std::string& line : describe_stages(config, plan.layout.pipeline, plan.layout.seq_length))
    lines.push_back(std::move(line));
  return lines;
}

}  // namespace nought
