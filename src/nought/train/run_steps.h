// RunSteps: makes the steps of a run: of all ranks, of workers that synchronize now and then (zero/local_steps.h), or
// such whose updates come later (zero/rotating_servers.h).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nought/checkpoint/checkpoint.h"
#include "nought/config/run_plan.h"
#include "nought/data/step_source.h"
#include "nought/engine/engine.h"
#include "nought/train/observer.h"
#include "nought/weights/foreign_states.h"
#include "nought/zero/local_steps.h"
#include "nought/zero/rotating_servers.h"

namespace nought {

/// How the ranks of a mesh read the rows of a step. workers: null unless they make local steps; they read one after the
/// other, as replicas do.
BatchLayout batch_layout(const RunPlan& plan, const Mesh& mesh, const Workers* workers);

class RunSteps {
 public:
  /// workers: null unless they make local steps; then the model is on the mesh of this one. All must outlive this
  /// object.
  RunSteps(const RunPlan& plan, Communicator& world, const Workers* workers, const StepSource& source,
           ShardedModel& model, Engine& engine);

  /// Begins what workers or servers keep beside the model, whose weights begin a run.
  void begin();
  /// Loads a checkpoint of this run or of another one, and begins. Returns lines for the user about what is not as it
  /// was. ConfigError if the optimizer cannot do without what each rank had for itself.
  std::vector<std::string> resume(Checkpoint& checkpoint);
  /// Loads what a run of another program left, and begins.
  void resume(const ForeignStates& states);

  /// The next step. Collective.
  StepResult make(std::span<const Batch> batches, double lr);
  /// Waits for updates that are on their way.
  void drain();
  /// If no step follows: waits for updates that are on their way, and applies one that is put off.
  void apply_last_update();
  /// No step follows: workers synchronize, so that all have the same weights.
  void finish();
  /// The model is about to be loaded with other weights: nothing updates the present ones any more.
  void end_serving();

  /// Steps made so far, those whose update was skipped included.
  int64_t made() const { return servers_ ? servers_->steps() : model_.optimizer().updates() + engine_.skipped(); }
  /// The steps whose update was skipped, by any worker.
  int64_t skipped() const { return local_ ? skipped_by_workers_ : engine_.skipped(); }
  /// What all collectives of steps have sent.
  int64_t bytes_sent() const;
  /// Staleness of asynchronous updates in the run so far, the seconds waited included; nothing where there are none.
  std::optional<StalenessReport> staleness() const;

  /// What a checkpoint keeps of the workers. Collective.
  std::optional<LocalStepsInfo> worker_info();
  CheckpointedWorkers checkpointed() { return {&world_, local_ ? &*local_ : nullptr}; }

 private:
  void begin_serving();
  /// Loads what this worker goes on from. False where the checkpoint is of no workers, and neither is this run.
  bool resume_worker(Checkpoint& checkpoint, std::vector<std::string>& notes);
  StepResult push(std::span<const Batch> batches, int64_t number, double lr);
  /// After a step of this worker: it synchronizes with others if that is due, and all tell each other how the step
  /// went. weight: of its targets.
  void finish_local_step(StepResult& result, int64_t step, double weight);
  /// Targets of a step that its loss is the mean over: all, or those of this worker.
  double weight_of_step(int64_t step) const;

  const RunPlan& plan_;
  Communicator& world_;
  const Workers* workers_;
  const StepSource& source_;
  ShardedModel& model_;
  Engine& engine_;
  std::optional<LocalSteps> local_;
  int64_t skipped_by_workers_ = 0;
  std::unique_ptr<RotatingServers> servers_;  // null unless updates come later
};

}  // namespace nought
