// Trainer: carries out a run's plan: builds the model, loads weights or a checkpoint, opens the data, makes the steps,
// saves checkpoints and exports the weights.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "nought/config/run_config.h"
#include "nought/config/run_plan.h"
#include "nought/data/tokenizer_export.h"
#include "nought/models/decoder.h"
#include "nought/train/breakdown.h"
#include "nought/train/checkpoint.h"
#include "nought/train/engine.h"
#include "nought/train/observer.h"
#include "nought/train/peak.h"
#include "nought/train/run_data.h"

namespace nought {

enum class StartMode : uint8_t {
  fresh,      // begins a run; the output folder must hold no checkpoints
  overwrite,  // begins a run; checkpoints and metrics of an earlier one are removed
  resume      // continues from the last checkpoint of the output folder
};

/// The config of the plan's model: the inline one, or that of the model's folder.
ModelConfig model_config_of(const RunPlan& plan);
/// How a plan's run shards its model.
ShardedModel::Options sharding_of(const RunPlan& plan);
/// The plan of a run that begins or continues on this machine. With training.bf16 = "auto", a run that continues keeps
/// the dtype of the last checkpoint; for any other run the CPU decides.
RunPlan resolve_run(const RunConfig& config, int world_size, StartMode mode);
/// Checks what could stop a run, without allocating anything: the model and its weight files, the data files, the
/// output folder, the checkpoint. Throws what the run would throw.
void validate_run(const RunPlan& plan, StartMode mode);

class Trainer {
 public:
  /// Builds and loads everything. Collective. Observers are called on rank 0 only.
  Trainer(const RunPlan& plan, StartMode mode, Communicator& world, const Context& context,
          std::vector<TrainObserver*> observers);
  /// Makes the steps up to max_steps, saves a checkpoint and exports the weights. Collective.
  void run();

  /// Steps made so far, those whose update was skipped included.
  int64_t steps_made() { return model_.optimizer().updates() + engine_.skipped(); }

 private:
  void load();
  /// Measures the peak that MFU refers to. Collective.
  void measure_machine();
  RunSummary summary(int64_t first_step) const;
  /// Makes a step. If the plan asks for it, records trace events and adds what they tell to the report.
  StepReport timed_step(double flops_per_token);
  StepProfile profile_of(std::span<const TraceEvent> events, const StepReport& report, double flops_per_token) const;
  StepReport step(double flops_per_token);
  void forget_events();
  RouterLoads expert_loads();
  /// What exports and checkpoints say of the model and its tokenizer.
  ModelConfig exported_config() const;
  TokenizerExport exported_tokenizer() const;
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
  std::optional<MatrixPeak> peak_;  // set by measure_machine()
  std::string start_;
  int64_t traced_step_ = 0;  // the step that is traced; 0: none
  std::vector<CollectiveTotal> collectives_;
  std::vector<std::string> notes_;
};

}  // namespace nought
