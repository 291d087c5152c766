// Engine: the executor of schedules. It runs one training step of a sharded model: the passes of each micro-batch, the
// norm, the update, in the order of a list of instructions.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nought/data/sampler.h"
#include "nought/engine/model_schedule.h"
#include "nought/engine/passes.h"
#include "nought/engine/spike.h"
#include "nought/engine/step_schedule.h"
#include "nought/engine/update_guess.h"
#include "nought/optim/loss_scaler.h"

namespace nought {

/// Bytes that are alive in the device pool when a phase ends: the last passes of the step, and the update.
struct PhaseMemory {
  int64_t forward = 0, backward = 0, update = 0;
};

struct StepResult {
  double loss = 0;             // mean over all targets of all ranks and micro-batches, by their weights
  double grad_norm = 0;        // global L2 norm, before clipping and without the loss scale
  double loss_scale = 1;       // the scale that the step was computed with
  bool skipped = false;        // the loss or the norm is not finite, so no rank made the update
  std::string nonfinite = {};  // what was found where; "" with a loss scale, which expects overflows
  bool stop = false;           // a rank wants to stop after this step; the same on all ranks
  PhaseMemory memory = {};
  std::vector<double> shared = {};  // see set_shared()
  std::string spike = {};           // what was found when a step with a spike was computed again; "" without one
  std::string guess = {};           // UpdateGuess::add()

  /// True if loss and norm are finite.
  bool finite() const;
};

class Engine {
 public:
  /// gradient_factor: a factor on all gradients between the loss and the update. 1: the reduced gradient is the
  /// gradient of the global mean loss. N ranks: it is the sum of the ranks' mean gradients (DeepSpeed's
  /// prescale_gradients = false). The update divides it out again, as it does the loss scale.
  explicit Engine(ShardedModel& model, LossScaler scaler = {}, double gradient_factor = 1,
                  OnNonfinite on_nonfinite = OnNonfinite::stop)
      : model_(model),
        scaler_(scaler),
        gradient_factor_(gradient_factor),
        on_nonfinite_(on_nonfinite),
        virtual_ranks_(model.options().virtual_ranks),
        schedules_(default_schedule(model.mesh())) {}

  /// Runs forward and backward of the step's micro-batches and reduces the gradients of the mean loss.
  /// total_weight: what the targets weigh over all ranks and micro-batches (Objective::weight). Without weights that is
  /// how many targets are not ignored. If the loss or the norm is not finite, all ranks throw the same Error, which
  /// names the place.
  StepResult accumulate(std::span<const Batch> micro_batches, double total_weight);
  /// Accumulates, then clips by the global norm as torch.nn.utils.clip_grad_norm_ does (max_norm 0: no clipping), and
  /// updates. If the loss or the norm is not finite and there is a loss scale, or on_nonfinite is skip, the update is
  /// skipped and nothing is thrown.
  StepResult step(std::span<const Batch> micro_batches, double total_weight, double lr, double max_norm);
  /// The passes alone: the gradients stay with this rank, and result.loss is the sum of its own losses.
  StepResult pass(std::span<const Batch> micro_batches, double total_weight);
  /// The mean loss without gradients.
  double evaluate(std::span<const Batch> micro_batches, double total_weight);
  /// The sums of losses of the ranks that read different samples, by rank.
  std::vector<double> evaluate_by_rank(std::span<const Batch> micro_batches);
  bool has_virtual_ranks() const { return virtual_ranks_ > 0; }

  /// What steps and evaluations are made of: default_schedule() (engine/model_schedule.h), unless this is called.
  void set_schedule(Schedules schedules) { schedules_ = std::move(schedules); }
  /// Sets the schedule of the steps alone.
  void set_schedule(MakeSchedule steps) { schedules_.step = std::move(steps); }
  /// Asked once in each step, when the gradients are reduced: whether this rank wants to stop after it. The answer
  /// travels with the loss, so that all ranks hear of it in the same step.
  void set_wants_stop(std::function<bool()> wants_stop) { wants_stop_ = std::move(wants_stop); }
  bool wants_stop() const { return wants_stop_ && wants_stop_(); }
  /// Asked once in each step, when the gradients are reduced: numbers that this rank shares. They travel with the loss,
  /// and StepResult::shared has those of all ranks, by rank. In any one step all ranks share as many.
  void set_shared(std::function<std::vector<double>()> share) { share_ = std::move(share); }
  /// A step whose loss or gradient norm is a spike (SpikeWatch) is computed again from the same state, before the
  /// update. If the bits are the same, the step goes on with them: the data or the model made the spike. If not, the
  /// hardware did; then the update uses what two of three computations agree on, and without such two all ranks throw
  /// the same Error. With a loss scale, results that are not finite are overflows and no spikes.
  void repeat_spikes(double factor) { spikes_.emplace(factor); }
  LossScaler& scaler() { return scaler_; }
  /// Steps whose update was skipped. A resumed run sets the number that its checkpoint has.
  int64_t skipped() const { return skipped_; }
  void set_skipped(int64_t skipped) { skipped_ = skipped; }
  /// What was guessed of updates that run overlapped with the backward pass, before their norm was known.
  const UpdateGuess& guess() const { return guess_; }

 private:
  /// A schedule while it is run.
  struct Run {
    const StepSchedule& schedule;
    std::span<const Batch> batches;
    double total_weight = 0;
    double gradient_scale = 0;  // of the losses
    double lr = 0, max_norm = 0;
    Tensor loss_sum = {};                   // f64, on the device: [1], or with virtual ranks one for each of them
    std::vector<int64_t> loss_places = {};  // see Passes::Options
    std::vector<double> sums = {};  // what the result is made of: squares by Unit, and the loss; for repeat_spikes()
    StepResult result = {};
  };
  /// Where the loss of each micro-batch stands among those of the virtual ranks, as this rank reads their samples.
  std::vector<int64_t> virtual_ranks_of(int64_t micro_batches) const;
  Run begin(const StepSchedule& schedule, std::span<const Batch> micro_batches, double total_weight) const;
  StepSchedule schedule_of(std::span<const Batch> micro_batches, double total_weight) const;
  /// Runs the instructions of the schedule, up to its `end` if there is one.
  void execute(Run& run, std::optional<Action> end = {});
  /// A pass or a message: the instruction at this place.
  void run_pass(Run& run, Passes& passes, size_t place);
  void reduce(Run& run);
  void update(Run& run);
  /// True if something stands before an update that is known when all gradients are there: then one that is begun
  /// before is a guess.
  bool awaits_norm(double max_norm) const;
  void begin_early_update(double lr, double max_norm);
  /// Computes the run's step again if it is a spike.
  void repeat_if_spike(Run& run);
  void repeat(Run& run);
  /// Names the ranks whose own loss was another one before. Collective.
  std::string culprits(double own_before, double own_now);
  /// Bytes of the device pool.
  int64_t alive() const;
  /// The message for a result that is not finite. Collective.
  std::string explain(const StepResult& result, const StepSchedule& schedule, std::span<const Batch> micro_batches,
                      double total_weight);

  ShardedModel& model_;
  LossScaler scaler_;
  double gradient_factor_;
  OnNonfinite on_nonfinite_;
  int virtual_ranks_;
  Schedules schedules_;
  std::function<bool()> wants_stop_;
  std::function<std::vector<double>()> share_;
  std::optional<SpikeWatch> spikes_;
  UpdateGuess guess_;
  std::vector<double> state_before_;  // Model::state() when the step began; for repeat_spikes()
  int64_t skipped_ = 0;
};

}  // namespace nought
