// Formats predictions and measurements as tables for people, and predictions as JSON for programs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nought/base/json.h"
#include "nought/io/file_format.h"
#include "nought/plan/budgets.h"
#include "nought/plan/gpu_rates.h"
#include "nought/plan/longest.h"
#include "nought/plan/step_time.h"

namespace nought {

/// ", 1.2M of them trained", or nothing if none is frozen.
std::string trained_text(int64_t parameters, int64_t frozen);

/// One column of memory_table: the peaks of a rank, measured or predicted.
struct MemoryColumn {
  std::string title;
  RankMemory memory;
};
/// The peaks by category, with a column for each rank. "all at once" is the largest sum at one moment. Names and gaps
/// get smaller where the table is wider than `width` (0: no limit).
std::string memory_table(const std::vector<MemoryColumn>& columns, int width = 0);
/// The table for the end of a run: for each place on the pipeline axis a column with the prediction, which holds for
/// all ranks there, then each of these ranks' measurement; or the most that is predicted, and the least and the most of
/// all ranks, where the width has no room for each. predicted: may be empty. measured: by rank; ranks at one place are
/// neighbours.
std::string memory_table(const std::vector<RankMemory>& predicted, const std::vector<RankMemory>& measured,
                         int width = 0);

/// What is assumed of experts that ranks share out, and the most that a rank can need.
std::string bound_text(const RankMemory& at_most);

/// A model and the predictions of its run.
struct PlanReport {
  ModelConfig config;
  std::vector<Prediction> predictions = {};   // at least one; their layouts differ only in the ZeRO stage
  std::vector<Prediction> recompute = {};     // may be empty; their layouts differ only in what is recomputed
  MemoryBudgets budgets = {};                 // of a rank
  double peak_flops = 0;                      // FLOP/s of a rank (kernels/limits.h); 0 = no times are shown
  std::string peak_name = {};                 // what the peak is: "fp32 FMA on AVX-512"
  std::vector<std::string> zero_costs = {};   // lines of describe_zero_cost()
  std::optional<double> idle_share = {};      // of a pipeline: PipelineTimeline::idle_share(), times by FLOPs
  std::vector<LongestSequence> longest = {};  // may be empty
  std::optional<StepTime> time = {};          // of the run's own stage
  std::optional<GpuRates> gpu = {};           // by which it was predicted; not given: this machine's
};
/// Tables of memory between steps and at its peak, of a step's traffic by collective, of FLOPs per token and per step,
/// and of the time that a step's FLOPs take at the peak.
std::string to_text(const PlanReport& report);
inline constexpr FileFormat kPlanReportFormat{"nought-plan", 1};
OrderedJson to_json(const PlanReport& report);

}  // namespace nought
