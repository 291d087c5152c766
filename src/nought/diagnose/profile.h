// The profile of a step, from its trace events: its operations by name, and by the modules that ran them.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "nought/config/run_plan.h"
#include "nought/diagnose/breakdown.h"
#include "nought/kernels/work.h"

namespace nought {

/// A sum over operations.
struct OperationTotal {
  int64_t runs = 0;
  double seconds = 0;
  Work work = {};

  void add(const TraceEvent& operation);
  OperationTotal& operator+=(const OperationTotal& other);
};

/// All operations among the events by name: "MatMul 4096 x 768 x 3072", "LayerNorm".
std::map<std::string, OperationTotal> operations_of(std::span<const TraceEvent> events);

/// The operations of a module: the model, a Unit, or a part of a Unit. They include those of the modules inside it.
struct ModuleProfile {
  std::string name;        // "llama", "block.3", "attention"
  int64_t parameters = 0;  // elements; 0 for parts of a Unit
  OperationTotal forward = {}, backward = {};
  std::vector<ModuleProfile> inside = {};  // in the order in which they first ran

  double seconds() const { return forward.seconds + backward.seconds; }
  double flops() const { return forward.work.flops + backward.work.flops; }
};

/// One step of one rank.
struct StepProfile {
  ProfileOptions options;
  int64_t step = 0;
  double seconds = 0;  // how long the whole step took, waiting included
  std::string dtype;
  int world_size = 1, zero_stage = 0;
  int64_t micro_batch = 1, accumulation = 1, seq_length = 0;
  int64_t rank_parameters = 0;  // parameters that this rank holds when they are not in use
  double model_flops = 0;       // FLOPs of this rank's tokens by the formula of models/flops.h
  double peak_flops = 0;        // peak FLOP/s of this rank

  StepBreakdown times = {};
  OperationTotal optimizer = {};                          // operations outside of the model's passes
  std::map<std::string, OperationTotal> operations = {};  // all operations of the step, by name
  /// Operations of the model's passes. forward includes the gradients that the loss forms in the forward pass; backward
  /// includes recomputation.
  ModuleProfile model = {};
};

/// Fills in what the events of the step tell: times, optimizer, operations and model. The model's own name and all
/// counts of parameters are left to the caller.
void add_events(std::span<const TraceEvent> events, StepProfile& profile);

}  // namespace nought
