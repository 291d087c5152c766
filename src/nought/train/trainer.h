// Trainer: a run from its plan: model, weights or checkpoint, data, the loop of steps, checkpoints, export.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "nought/config/run_config.h"
#include "nought/config/run_plan.h"
#include "nought/models/decoder.h"
#include "nought/train/breakdown.h"
#include "nought/train/checkpoint.h"
#include "nought/train/engine.h"
#include "nought/train/observer.h"
#include "nought/train/peak.h"
#include "nought/train/run_data.h"

namespace nought {

enum class StartMode : uint8_t {
  fresh,      // the output folder must hold no checkpoints
  overwrite,  // checkpoints and metrics of an earlier run are removed
  resume      // continue the last checkpoint of the output folder
};

/// The model's config of a plan: inline, or of its folder.
ModelConfig model_config_of(const RunPlan& plan);
/// How a plan's run shards its model.
ShardedModel::Options sharding_of(const RunPlan& plan);
/// The plan of a run that begins, or continues, here: training.bf16 = "auto" stays what the last checkpoint of the
/// output folder was trained in, and is decided by the CPU where there is none.
RunPlan resolve_run(const RunConfig& config, int world_size, StartMode mode);
/// Finds out what would stop a run, without allocating anything: the model and its weight files, the data files, the
/// output folder, the checkpoint. Throws what the run would throw.
void validate_run(const RunPlan& plan, StartMode mode);

class Trainer {
 public:
  /// Builds and loads everything. Collective. Observers are called on rank 0 only.
  Trainer(const RunPlan& plan, StartMode mode, Communicator& world, const Context& context,
          std::vector<TrainObserver*> observers);
  /// Runs to max_steps, saves, exports. Collective.
  void run();

  /// Updates made and skipped: each has its own samples.
  int64_t steps_made() { return model_.optimizer().updates() + engine_.skipped(); }

 private:
  void load();
  /// Before the first step. Collective.
  void measure_machine();
  RunSummary summary(int64_t first_step) const;
  /// A step, and what the context's timeline has to say about it.
  StepReport timed_step(double flops_per_token);
  StepProfile profile_of(std::span<const Span> spans, const StepReport& report, double flops_per_token) const;
  StepReport step(double flops_per_token);
  void forget_spans();
  RouterLoads expert_loads();
  void save();
  bool validates_after(int64_t step) const;
  void validate();
  std::vector<RankMemory> gather_memory();
  template <class F>
  void tell(F&& f) {
    if (world_.rank() == 0)
      for (TrainObserver* observer : observers_) f(*observer);
  }

  RunPlan plan_;
  StartMode mode_;
  Mesh mesh_;
  Communicator& world_;
  Context context_;
  std::vector<TrainObserver*> observers_;
  std::unique_ptr<Tokenizer> tokenizer_;
  RunData data_;
  TrainSampler sampler_;
  Decoder decoder_;
  ShardedModel model_;
  Engine engine_;
  std::optional<MatrixPeak> peak_;  // once run() has measured it
  std::string start_;
  int64_t traced_step_ = 0;  // 0: none
  std::vector<CollectiveTotal> collectives_;
  std::vector<std::string> notes_;
};

}  // namespace nought
