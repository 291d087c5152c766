// Engine: one training step over a sharded model: forward and backward of each micro-batch, the norm, the update.
#pragma once

#include <span>
#include <string>

#include "nought/data/sampler.h"
#include "nought/optim/loss_scaler.h"
#include "nought/zero/sharded_model.h"

namespace nought {

/// Bytes that are alive in the device pool when a phase of a step ends; of its last micro-batch.
struct PhaseMemory {
  int64_t forward = 0, backward = 0, update = 0;
};

struct StepResult {
  double loss = 0;             // mean over all targets of all ranks and micro-batches, by their weights
  double grad_norm = 0;        // global L2 norm, before clipping and without the loss scale
  double loss_scale = 1;       // that the step was computed with
  bool skipped = false;        // what is not finite was met on some rank: no rank made the update
  std::string nonfinite = {};  // where, unless it was an overflow at the loss scale
  PhaseMemory memory = {};

  bool finite() const;
};

class Engine {
 public:
  /// gradient_factor: on gradients from the loss to the update, so that sums over ranks are formed larger or smaller
  /// than those of the mean; 1 keeps the mean's, the number of ranks those of the ranks' own means (DeepSpeed's
  /// prescale_gradients and gradient_predivide_factor choose). Like the loss scale it is divided out again.
  explicit Engine(ShardedModel& model, LossScaler scaler = {}, double gradient_factor = 1,
                  OnNonfinite on_nonfinite = OnNonfinite::stop)
      : model_(model), scaler_(scaler), gradient_factor_(gradient_factor), on_nonfinite_(on_nonfinite) {}

  /// Forward and backward of the step's micro-batches; afterwards the gradients of the mean loss are reduced.
  /// total_weight: what the targets count over all ranks and micro-batches (Objective::weight); without weights, how
  /// many there are. Error that names the place if the loss or the norm is not finite, the same on every rank.
  StepResult accumulate(std::span<const Batch> micro_batches, double total_weight);
  /// The same, clipping by the global norm (0: off, as torch.nn.utils.clip_grad_norm_), and the update; with a loss
  /// scale, or on_nonfinite = skip, what is not finite skips the update instead.
  StepResult step(std::span<const Batch> micro_batches, double total_weight, double lr, double max_norm);
  /// The mean loss without gradients.
  double evaluate(std::span<const Batch> micro_batches, double total_weight);

  LossScaler& scaler() { return scaler_; }
  /// Steps whose update was skipped; a resumed run starts from those it made before.
  int64_t skipped() const { return skipped_; }
  void set_skipped(int64_t skipped) { skipped_ = skipped; }

 private:
  StepResult compute(std::span<const Batch> micro_batches, double total_weight);
  /// What a person reads about a result that is not finite. Collective.
  std::string explain(const StepResult& result, std::span<const Batch> micro_batches, double total_weight);

  ShardedModel& model_;
  LossScaler scaler_;
  double gradient_factor_;
  OnNonfinite on_nonfinite_;
  int64_t skipped_ = 0;
};

}  // namespace nought
