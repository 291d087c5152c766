// How a run goes from step to step: what is due after each, what ends it early, and what it leaves behind.
#include <algorithm>
#include <array>
#include <utility>

#include "nought/base/host.h"
#include "nought/checkpoint/export_record.h"
#include "nought/comm/first_rank.h"
#include "nought/comm/flight_recorder.h"
#include "nought/diagnose/replicas.h"
#include "nought/train/text_sample.h"
#include "nought/train/trainer.h"
#include "nought/weights/hf_folder.h"

namespace nought {

namespace fs = std::filesystem;

namespace {
constexpr int64_t kTracedStep = 4;  // the third is the first in the arena, and touches its pages
}  // namespace

void Trainer::stop_on(std::function<int()> signal) {
  stop_signal_ = std::move(signal);
  engine_.set_wants_stop([this] { return stop_signal_() != 0; });
}

void Trainer::set_up_checks() {
  if (plan_.spiky_loss_factor > 0) engine_.repeat_spikes(plan_.spiky_loss_factor);
  if (!plan_.log_straggler || world_.size() == 1) return;
  stragglers_.emplace(plan_.logging_steps, texts_of_ranks(world_, context_, host_name()));
  engine_.set_shared([this] { return stragglers_->take(steps_made() + 1); });
}

void Trainer::check_replicas() {
  if (std::exchange(compared_, steps_made()) == steps_made()) return;
  require_same_replicas(model_, compared_, last_saved_);
  forget_events();
}

int Trainer::run() {
  const int signal = make_steps();
  if (signal == 0) finish();
  return signal;
}

int Trainer::make_steps() {
  measure_machine();
  const RunSummary start = summary(steps_made());
  tell([&](TrainObserver& observer) { observer.on_start(start); });
  if (!plan_.trace_file.empty()) traced_step_ = std::min(start.first_step + kTracedStep, plan_.max_steps);

  apply_last_update();
  if (validation_put_off_ && validates_after(start.first_step)) validate();
  bool stop = false;
  while (!stop && steps_made() < plan_.max_steps) {
    const StepReport report = timed_step(start.flops_per_token);
    apply_last_update();
    tell([&](TrainObserver& observer) { observer.on_step(report); });
    if (plan_.weight_hash_interval > 0 && report.step % plan_.weight_hash_interval == 0) check_replicas();
    stop = report.stop || do_what_is_due(report.step);
  }
  if (!stop) {
    if (plan_.best && validated_ != steps_made()) validate();
    if (saved_ != steps_made())
      save();
    else
      remove_old();  // a run that was killed behind its last save had not come to that
    stop = agreed_signal() != 0;
  }
  return stop ? interrupt() : 0;
}

void Trainer::finish() {
  if (local_) local_->finish(steps_made());
  if (validated_ != steps_made()) validate();
  export_weights();
  if (!collectives_.empty()) tell([&](TrainObserver& observer) { observer.on_collectives(collectives_); });
  const std::vector<RankMemory> peaks = gather_memory();
  tell([&](TrainObserver& observer) { observer.on_finish(peaks, plan_.output_dir); });
}

void Trainer::apply_last_update() {
  if (steps_made() >= plan_.max_steps) complete_updates();
  if (model_.optimizer().pending() && steps_made() >= plan_.max_steps) model_.finish_pending_update();
}

bool Trainer::do_what_is_due(int64_t step) {
  const bool samples = plan_.sample && (step % plan_.sample->steps == 0 || step == plan_.max_steps);
  if (!samples && !validates_after(step) && !saves_after(step)) return false;
  if (validates_after(step)) validate();
  if (samples) sample();
  if (saves_after(step)) save();
  return agreed_signal() != 0;
}

bool Trainer::validates_after(int64_t step) const {
  if (plan_.best && saves_after(step)) return true;
  switch (plan_.eval_strategy) {
    case EvalStrategy::no:
      return false;
    case EvalStrategy::steps:
      return step % plan_.eval_steps == 0;
    case EvalStrategy::epoch:
      return ends_epoch(step);
  }
  return false;
}

bool Trainer::ends_epoch(int64_t step) const {
  const int64_t samples = sampler_.dataset().num_samples();
  return step * plan_.train_batch / samples > (step - 1) * plan_.train_batch / samples;
}

void Trainer::validate() {
  validated_ = steps_made();
  if (!data_.validation) return;
  const Evaluation result = evaluate(engine_, model_, *data_.validation, *tokenizer_, plan_.eval_micro_batch);
  forget_events();
  // What is compared are checkpoints: those that are due, and the last.
  if (plan_.best && (saves_after(validated_) || validated_ == plan_.max_steps))
    best_ = best_with(best_, validated_, result, *plan_.best);
  tell([&](TrainObserver& observer) { observer.on_validation(validated_, result); });
}

void Trainer::sample() {
  note_phase(world_, "sampling");
  const std::string text = continue_prompt(model_, decoder_, *tokenizer_, *plan_.sample);
  forget_events();
  tell([&](TrainObserver& observer) { observer.on_sample(steps_made(), plan_.sample->prompt, text); });
}

void Trainer::export_weights() {
  note_phase(world_, "export");
  ExportRecord record{.step = steps_made(), .written_by = plan_.program};
  if (best_ && best_->step != record.step) {
    const fs::path path = found_by_first(world_, context_, [&] {
      fs::path found = checkpoint_path(plan_.output_dir, best_->step);
      require<IoError>(is_checkpoint(found),
                       "{} was the best checkpoint and is gone: `nought convert` writes the weights of another one",
                       found.string());
      return found.string();
    });
    const Checkpoint checkpoint(path, decoder_);
    if (servers_) model_.optimizer().end_serving();
    model_.load(checkpoint, checkpoint.info().step - checkpoint.info().skipped);
    record.best = best_;
  }
  if (best_)
    tell([&](TrainObserver& observer) { observer.on_best(*best_, checkpoint_path(plan_.output_dir, best_->step)); });
  if (!workers_ || workers_->index() == 0)
    export_hf_folder(model_, exported_config(), exported_tokenizer(), plan_.output_dir, plan_.max_shard_bytes);
  if (world_.rank() == 0) write_export_record(record, plan_.output_dir);
}

int Trainer::agreed_signal() {
  if (!stop_signal_) return 0;
  std::array<double, 1> signal{static_cast<double>(stop_signal_())};
  all_reduce_values(deciders(), context_, signal, ReduceOp::max);
  forget_events();
  return static_cast<int>(signal[0]);
}

int Trainer::interrupt() {
  if (saved_ != steps_made()) save();
  tell([&](TrainObserver& observer) { observer.on_interrupt(steps_made(), last_saved_); });
  return agreed_signal();
}

}  // namespace nought
