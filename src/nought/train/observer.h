// TrainObserver: receives what happens in a training run, on rank 0. Metrics files, progress lines and reports are
// observers.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "nought/autograd/moe.h"
#include "nought/checkpoint/best_model.h"
#include "nought/checkpoint/checkpoint_writer.h"
#include "nought/diagnose/breakdown.h"
#include "nought/diagnose/profile.h"
#include "nought/diagnose/stragglers.h"
#include "nought/engine/engine.h"
#include "nought/engine/evaluation.h"
#include "nought/tensor/memory.h"

namespace nought {

/// What is known before the first step.
struct RunSummary {
  std::string family;  // "llama"
  std::string start;   // "random weights from seed 1", "out/checkpoint-20"
  int64_t parameters = 0;
  int64_t frozen = 0;  // of the parameters
  std::string tokenizer;
  int64_t train_tokens = 0, targets = 0, samples = 0;  // targets: tokens that are trained
  int world_size = 1, zero_stage = 0;
  std::vector<std::string> mesh = {};  // a line for each axis, where there are several
  std::string dtype;
  int64_t first_step = 0, max_steps = 0;  // steps made before this start, and steps of the whole run
  int64_t tokens_per_step = 0;
  double flops_per_token = 0;      // the formulas of models/flops.h, less what frozen parameters save
  double peak_flops = 0;           // measured: FLOP/s that matrix products of all ranks together cannot exceed
  std::string peak_name;           // what the peak is: "fp32 FMA on AVX-512", see kernels/limits.h
  std::vector<std::string> notes;  // lines for the user
};

/// Staleness of asynchronous updates: how many updates the parameters lacked when gradients were computed, in the run
/// so far.
struct StalenessReport {
  int64_t last = 0;
  std::vector<int64_t> histogram = {};  // steps with so many
  double waited = 0;                    // seconds in which rank 0 waited for updates in this step

  double mean() const;
  int64_t most() const;
};

/// What is known after a step.
struct StepReport {
  int64_t step = 0;  // 1 for the first update
  double loss = 0, grad_norm = 0, lr = 0;
  double seconds = 0;
  double tokens_per_second = 0;  // the rate of all ranks together
  double mfu = 0;                // flops_per_token * tokens_per_second / peak_flops, at most 1
  double peak_flops = 0;         // as in RunSummary; it rises if a step exceeds it
  int64_t bytes_sent = 0;        // what rank 0 sent in this step by all collectives
  double loss_scale = 0;         // the scale that the step was computed with; 0 without scaling
  double next_loss_scale = 0;
  bool skipped = false;        // no update was made, because the loss or a gradient was not finite
  int64_t skipped_so_far = 0;  // updates of the run that were skipped
  std::string nonfinite = {};  // what was found where; "" with a loss scale, which expects overflows
  bool stop = false;           // a rank was asked to stop, so no step follows
  // The next four are those of rank 0, if the plan asks for them.
  std::optional<StepBreakdown> breakdown = {};
  std::optional<PhaseMemory> memory = {};
  std::vector<TraceEvent> collectives = {};
  std::optional<StepProfile> profile = {};
  RouterLoads experts = {};                  // over all ranks and micro-batches; empty without experts
  std::optional<RankComparison> ranks = {};  // of the steps before this one, if the plan asks for it
  std::string spike = {}, guess = {};        // see StepResult
  std::optional<StalenessReport> staleness = {};
  NamedNumbers of_answers = {};  // see Evaluation
};

/// The peaks of one rank, in bytes by category. All are those of the device pool but where a name says another.
struct RankMemory {
  std::array<int64_t, kNumCategories> peak{}, at_peak{};  // of each category alone, and when the sum peaked
  int64_t peak_total = 0;
  std::array<int64_t, kNumCategories> host{}, file{};  // of each category alone
  int64_t host_peak = 0, file_peak = 0;
  int64_t ram_peak = 0;       // see Memory::peak_in_ram()
  int64_t fragmentation = 0;  // see Memory::fragmentation()
};
/// The peaks of a Memory so far.
RankMemory peaks_of(const Memory& memory);
/// The peaks of all ranks, by rank, on the first one; nothing on the others. Collective.
std::vector<RankMemory> gather_peaks(Communicator& ranks, const Context& context);

class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void on_start(const RunSummary&) {}
  virtual void on_step(const StepReport&) {}
  /// A checkpoint is there, whole: maybe steps after the one that it is of.
  virtual void on_checkpoint(const SaveOutcome&) {}
  /// A checkpoint could not be saved, and the run goes on.
  virtual void on_failed_save(const SaveOutcome&) {}
  /// A validation after `step` steps.
  virtual void on_validation(int64_t /*step*/, const Evaluation&) {}
  /// How the model continued the prompt of the plan after `step` steps.
  virtual void on_sample(int64_t /*step*/, const std::string& /*prompt*/, const std::string& /*text*/) {}
  /// A signal ended the run after `step` steps, of which the last is in `checkpoint`. Nothing follows.
  virtual void on_interrupt(int64_t /*step*/, const std::filesystem::path& /*checkpoint*/) {}
  /// What will be exported are the weights of the best checkpoint.
  virtual void on_best(const BestModel&, const std::filesystem::path& /*checkpoint*/) {}
  /// The collectives of rank 0 in the whole run, if the plan asks for them.
  virtual void on_collectives(const std::vector<CollectiveTotal>&) {}
  /// The run has ended. The peaks are by rank; `exported` is the folder of the exported weights.
  virtual void on_finish(const std::vector<RankMemory>&, const std::filesystem::path& /*exported*/) {}
};

}  // namespace nought
