// Predictions and measurements as tables for people, and predictions as JSON for programs.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "nought/plan/predict.h"

namespace nought {

/// ", 1.2M of them trained", or nothing if none is frozen.
std::string trained_text(int64_t parameters, int64_t frozen);

/// One column of memory_table: the peaks of a rank, measured or predicted.
struct MemoryColumn {
  std::string title;
  RankMemory memory;
};
/// The peaks by category, one column each; the bottom line is the largest sum at one moment.
std::string memory_table(const std::vector<MemoryColumn>& columns);
/// The same for the end of a run: what was predicted for every rank, then what each rank measured.
std::string memory_table(const RankMemory& predicted, const std::vector<RankMemory>& measured);

/// A model and what is predicted of its run, at one stage or side by side at several.
struct PlanReport {
  ModelConfig config;
  std::vector<Prediction> predictions = {};  // of layouts that differ in the stage alone; at least one
  std::vector<Prediction> recompute = {};    // of layouts that differ in what is recomputed alone; may be empty
  int64_t device_memory = 0;                 // the budget of a rank; 0 = none
  double peak_flops = 0;                     // per second and rank (kernels/limits.h); 0 = no times are shown
  std::string peak_name = {};                // "fp32 FMA on AVX-512"
};
/// Memory between steps and at its peak, traffic of a step by collective, operations per token and per step, and the
/// time that a step's operations take at the peak.
std::string to_text(const PlanReport& report);
nlohmann::ordered_json to_json(const PlanReport& report);

}  // namespace nought
