#include "nought/train/trial_steps.h"

#include <numeric>
#include <vector>

#include "nought/base/timing.h"
#include "nought/engine/pipeline_cut.h"
#include "nought/models/flops.h"
#include "nought/tensor/random.h"
#include "nought/train/trainer.h"
#include "nought/zero/state.h"

namespace nought {

namespace {

/// Tokens that are a function of (number, rank, index); `number` counts micro-batches.
Batch random_batch(const TrialStep& trial, const Context& context, int rank, int ranks, int64_t number) {
  Batch batch = empty_batch(trial.layout.micro_batch, trial.layout.seq_length, *context.memory);
  const auto key = static_cast<uint64_t>(number * ranks + rank);
  uint64_t index = 0;
  for (const Tensor& tensor : {batch.input_ids, batch.targets})
    for (int32_t& token : tensor.span<int32_t>())
      token = static_cast<int32_t>(philox(key, index++)[0] % static_cast<uint64_t>(trial.config.vocab_size));
  return batch;
}

GridSizes grid_of(Layout layout, int ranks) {
  layout.ranks = ranks;
  return layout.grid();
}

/// Whether steps that took so long tell how long others will take.
bool tell_enough(const Samples& seconds) {
  constexpr size_t kSteps = 5;
  constexpr double kLeast = 2, kMost = 15;  // seconds, in all
  const double sum = std::accumulate(seconds.values.begin(), seconds.values.end(), 0.0);
  return (seconds.values.size() >= kSteps && sum >= kLeast) || sum >= kMost;
}

}  // namespace

TrialStep step_of(const RunPlan& plan, const std::string& name) {
  return {.name = name, .config = model_config_of(plan), .layout = plan.layout};
}

TrialSteps::TrialSteps(Communicator& ranks, const Context& context, const TrialStep& trial)
    : trial_(trial),
      context_(context),
      layout_(trial_.layout),
      mesh_(ranks, grid_of(trial_.layout, ranks.size())),
      samples_(mesh_.group(Group::samples)),
      decoder_(trial.config, layout_.recompute, layout_.fp8,
               ModelRanks(mesh_, layout_.sequence_parallel,
                          pipeline_cut_of(layout_.pipeline, trial.config, layout_.seq_length), layout_.context_method)),
      model_(context, mesh_, apply(layout_.freezing, decoder_), layout_.sharding_options()),
      engine_(model_, LossScaler(), /*gradient_factor=*/1, OnNonfinite::skip) {
  engine_.set_schedule(schedule_at(mesh_, layout_.pipeline));
  model_.load(InitialState(1));
}

int64_t TrialSteps::tokens() const {
  return samples_.size() * layout_.micro_batch * layout_.accumulation * layout_.seq_length;
}

double TrialSteps::flops_per_token() const {
  return training_flops_per_token(trial_.config, layout_.seq_length) -
         frozen_flops_per_token(decoder_, layout_.seq_length);
}

void TrialSteps::step() {
  std::vector<Batch> batches;
  for (int64_t i = 0; i < layout_.accumulation; ++i)
    batches.push_back(random_batch(trial_, context_, samples_.rank(), samples_.size(), made_++));
  engine_.step(batches, static_cast<double>(tokens()), /*lr=*/1e-4, /*max_norm=*/1);
  model_.settle();
  context_.stream->synchronize();
}

Samples measure_steps(Communicator& ranks, const Context& context, const TrialStep& trial) {
  Context own = context;
  // A GPU has one Memory, that of its compute stream: what is left there is counted no more.
  if (context.memory->device().is_host()) own.memory = Memory::create();
  Samples seconds;
  {
    TrialSteps steps(ranks, own, trial);
    steps.step(), steps.step();  // what a step takes is allocated in these
    do {
      ranks.barrier().wait();
      double slowest = seconds_of([&] { steps.step(); });
      all_reduce_values(ranks, own, std::span(&slowest, 1), ReduceOp::max);
      seconds.values.push_back(slowest);
    } while (!tell_enough(seconds));
  }
  if (own.memory == context.memory) context.memory->ledger().reset_peaks();
  return seconds;
}

}  // namespace nought
