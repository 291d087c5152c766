// What a step spent on what: its operations by name, and by the modules whose work they were, from its timeline.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "nought/config/run_plan.h"
#include "nought/kernels/work.h"
#include "nought/train/breakdown.h"

namespace nought {

/// Operations together.
struct OperationTotal {
  int64_t runs = 0;
  double seconds = 0;
  Work work = {};

  void add(const TraceEvent& operation);
  OperationTotal& operator+=(const OperationTotal& other);
};

/// All operations among the events by name: "MatMul 4096 x 768 x 3072", "LayerNorm".
std::map<std::string, OperationTotal> operations_of(std::span<const TraceEvent> events);

/// The model, a Unit or a part of one, with everything inside it; in the order in which they first worked.
struct ModuleProfile {
  std::string name;        // "llama", "block.3", "attention"
  int64_t parameters = 0;  // of the model and of Units; 0 of parts, which have none of their own
  OperationTotal forward = {}, backward = {};
  std::vector<ModuleProfile> inside = {};

  double seconds() const { return forward.seconds + backward.seconds; }
  double flops() const { return forward.work.flops + backward.work.flops; }
};

/// One step of one rank.
struct StepProfile {
  ProfileOptions options;
  int64_t step = 0;
  double seconds = 0;  // of the whole step, waiting included
  std::string dtype;
  int world_size = 1, zero_stage = 0;
  int64_t micro_batch = 1, accumulation = 1, seq_length = 0;
  int64_t rank_parameters = 0;  // that this rank keeps between its uses of them
  double model_flops = 0;       // of this rank's tokens by the formula, models/flops.h
  double peak_flops = 0;        // of this rank, per second

  StepBreakdown times = {};       // of the passes, waiting included
  OperationTotal optimizer = {};  // what the model's passes did is in `model`
  std::map<std::string, OperationTotal> operations = {};
  ModuleProfile model = {};  // forward includes the gradients that the loss forms, backward what is computed again
};

/// Fills in what the events of the step tell: times, optimizer, operations and model but for names and parameters.
void add_events(std::span<const TraceEvent> events, StepProfile& profile);

}  // namespace nought
