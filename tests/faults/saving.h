// What is done while system calls fail: a checkpoint is saved and the one before it removed, or a run goes on.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "support/tiny_llama.h"

#include "nought/checkpoint/checkpoint.h"
#include "nought/comm/thread.h"
#include "nought/models/decoder.h"
#include "nought/observe/metrics.h"
#include "nought/train/trainer.h"
#include "nought/weights/hf_folder.h"

namespace nought::test {

/// Saves the initial state of a seed as FOLDER/checkpoint-STEP and keeps the last checkpoint alone.
inline void save_state(const std::filesystem::path& folder, int64_t step, uint64_t seed, int ranks) {
  run_ranks(ranks, [&](Communicator& world, const Context& context) {
    Decoder decoder(tiny_llama(1));
    ShardedModel model(context, world, decoder, {.policy = Policy::stage(2)});
    model.load(InitialState(seed));
    save_checkpoint(model, {.step = step, .world_size = ranks, .zero_stage = 2}, folder,
                    [&](const std::filesystem::path& to) {
                      export_companions(decoder.config(), DType::f32, {.tokenizer = "bytes"}, to);
                    });
    if (world.rank() == 0) remove_old_checkpoints(folder, 1);
  });
}

/// Trains up to so many steps on TEXT, from the last checkpoint in FOLDER if there is one. Each step is saved, and the
/// last checkpoint is kept.
inline void train_on(const std::filesystem::path& folder, const std::filesystem::path& text, int64_t steps, int ranks) {
  RunPlan plan;
  plan.model_config = tiny_llama_json(1);
  plan.data.sources = {{{text.string()}}};
  plan.layout.seq_length = 16;
  plan.layout.ranks = ranks, plan.max_steps = steps;
  plan.save_steps = 1, plan.save_total_limit = 1;
  plan.schedule = {.type = ScheduleType::constant, .peak_lr = 1e-3, .warmup_steps = 0, .total_steps = steps};
  plan.output_dir = folder.string();
  const StartMode mode = list_checkpoints(folder).empty() ? StartMode::fresh : StartMode::resume;
  std::filesystem::create_directories(folder);
  MetricsWriter metrics(folder);
  run_ranks(ranks, [&](Communicator& world, const Context& context) {
    Trainer(plan, mode, world, context, {&metrics}).run();
  });
}

/// The parameters and optimizer states of a checkpoint of one of these two. IoError if it is not whole.
inline std::vector<float> values_of(const std::filesystem::path& checkpoint) {
  const auto self = make_self_communicator();
  const Context context = Context::cpu();
  Decoder decoder(tiny_llama(1));
  ShardedModel model(context, *self, decoder, {});
  model.load(Checkpoint(checkpoint, decoder));
  std::vector<float> values;
  const auto add = [&](const Tensor& tensor) {
    const auto more = context.to_host<float>(tensor);
    values.insert(values.end(), more.begin(), more.end());
  };
  for (size_t unit = 0; unit < decoder.units().size(); ++unit)
    model.with_parameters(unit, [&](const Parameter&, const Tensor& tensor) { add(tensor); });
  model.optimizer().for_each_kept([&](const Parameter&, StateKind, const Tensor& tensor) { add(tensor); });
  return values;
}

}  // namespace nought::test
