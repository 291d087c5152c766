// What a training run tells while it goes: metrics files, progress lines and reports listen here, on rank 0.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "nought/autograd/moe.h"
#include "nought/tensor/memory.h"
#include "nought/train/breakdown.h"
#include "nought/train/engine.h"
#include "nought/train/evaluation.h"
#include "nought/train/profile.h"

namespace nought {

/// What is known before the first step.
struct RunSummary {
  std::string family;  // "llama"
  std::string start;   // "random weights from seed 1", "out/checkpoint-20"
  int64_t parameters = 0;
  int64_t frozen = 0;  // of the parameters
  int64_t train_tokens = 0, samples = 0;
  int world_size = 1, zero_stage = 0;
  std::string dtype;
  int64_t first_step = 0, max_steps = 0;  // updates made before, and in the end
  int64_t tokens_per_step = 0;
  double flops_per_token = 0;  // 6 Psi + 6 L h s, the head counted once, less what frozen parameters save
  double peak_flops = 0;       // measured: what matrix products of all ranks together cannot exceed, per second
  std::string peak_name;       // "fp32 FMA on AVX-512", see kernels/limits.h
  std::vector<std::string> notes;
};

struct StepReport {
  int64_t step = 0;  // 1 for the first update
  double loss = 0, grad_norm = 0, lr = 0;
  double seconds = 0;
  double tokens_per_second = 0;  // of all ranks
  double mfu = 0;                // flops_per_token * tokens_per_second / peak_flops, at most 1
  double peak_flops = 0;         // measured again where it was exceeded
  int64_t bytes_sent = 0;        // by rank 0 in this step, over all collectives
  double loss_scale = 0;         // that the step was computed with; 0 without scaling
  double next_loss_scale = 0;
  bool skipped = false;                         // a gradient overflowed, or something was not finite: no update
  int64_t skipped_so_far = 0;                   // updates of the run that were skipped
  std::string nonfinite = {};                   // what was found where, unless the loss scale is to blame
  std::optional<StepBreakdown> breakdown = {};  // of rank 0, where it is asked for
  std::optional<PhaseMemory> memory = {};       // of rank 0, where it is asked for
  std::vector<Span> collectives = {};           // of rank 0, where each is to be shown
  std::optional<StepProfile> profile = {};      // of rank 0, of the step that it is asked for
  RouterLoads experts = {};                     // of all ranks and micro-batches; empty without experts
};

/// Bytes of one rank, by category.
struct RankMemory {
  std::array<int64_t, kNumCategories> peak{}, at_peak{};
  int64_t peak_total = 0;
  int64_t host_peak = 0;      // of the host pool; all else is of the device's
  int64_t fragmentation = 0;  // beyond what was alive, see Memory
};
RankMemory peaks_of(const Memory& memory);

class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void on_start(const RunSummary&) {}
  virtual void on_step(const StepReport&) {}
  virtual void on_checkpoint(const std::filesystem::path&) {}
  /// After `step` updates.
  virtual void on_validation(int64_t /*step*/, const Evaluation&) {}
  /// Of rank 0 in the whole run, where they are asked for.
  virtual void on_collectives(const std::vector<CollectiveTotal>&) {}
  virtual void on_finish(const std::vector<RankMemory>&, const std::filesystem::path& /*exported*/) {}
};

}  // namespace nought
