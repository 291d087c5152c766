// predict(): what a training run will hold, send and compute, before anything of it is allocated.
//
// Design goals: the prediction is a rehearsal, not a second model of memory: Model::loss, the tape, the ShardedModel
// and the Engine run as they are, on kernels that compute nothing, memory that is only counted and ranks that are not
// there. So a change to training changes its prediction with it. Non-goals: time, memory of the libraries.
#pragma once

#include <string>
#include <vector>

#include "nought/config/run_plan.h"
#include "nought/models/config.h"
#include "nought/plan/rehearsal.h"
#include "nought/train/observer.h"
#include "nought/zero/sharded_model.h"

namespace nought {

/// How a run is laid out over its ranks and in time.
struct Layout {
  int ranks = 1, stage = 0;
  int64_t micro_batch = 1, seq_length = 1, accumulation = 1;
  RecomputeOptions recompute = {};
  Fp8Options fp8 = {};
  Freezing freezing = {};               // what is not trained
  ShardedModel::Options sharding = {};  // dtypes, optimizer, overlap; its policy is that of `stage`
  Wire wire = Wire::mpi;
  int64_t evaluation_rows = 0;  // sequences per rank and forward of a validation; 0 = there is none

  int64_t tokens_per_step() const { return ranks * micro_batch * accumulation * seq_length; }
  Layout at_stage(int other) const {
    Layout layout = *this;
    layout.stage = other;
    return layout;
  }
  /// "stage 3, micro-batch 4 x 2, recompute"
  std::string str() const;
};
Layout layout_of(const RunPlan& plan);

/// What one rank will do; all ranks of a data-parallel group do the same.
struct Prediction {
  Layout layout;
  std::array<int64_t, kNumCategories> steady{};  // bytes between two steps, by Category
  RankMemory memory;                             // the peaks
  Traffic traffic;                               // sent in one step; validations come on top
  int64_t parameters = 0, frozen = 0;            // of the whole model, and those of them that are not trained
  double executed_flops = 0;                     // by this rank in one step, recomputation included

  int64_t steady_total() const;
};
Prediction predict(const ModelConfig& config, const Layout& layout);

/// The run at every stage, 0 to 3.
std::vector<Prediction> predict_stages(const ModelConfig& config, const Layout& layout);
/// The run with no, selective and full recompute.
std::vector<Prediction> predict_recompute(const ModelConfig& config, const Layout& layout);

}  // namespace nought
