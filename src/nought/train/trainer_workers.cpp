// What a run of workers does otherwise: each makes steps of its own (zero/local_steps), and they tell each other how
// these went.
#include <algorithm>
#include <array>
#include <cmath>

#include "nought/train/trainer.h"

namespace nought {

double Trainer::weight_of_step(int64_t step) const {
  if (!workers_) return static_cast<double>(sampler_.targets_in_step(step));
  const int ranks = mesh_.group(Group::samples).size();
  return static_cast<double>(sampler_.targets_in_step(step, workers_->index() * ranks, ranks));
}

void Trainer::begin_apart() {
  if (local_ && !resumes(mode_)) local_->begin();
  if (!plan_.layout.staleness) return;
  const int64_t steps = steps_made();
  auto group = world_.split(0, world_.rank()), guard = world_.split(0, world_.rank());
  servers_ = std::make_unique<RotatingServers>(model_, std::move(group), std::move(guard), *plan_.layout.staleness,
                                               plan_.gradient_factor);
  servers_->begin(steps);
}

int64_t Trainer::bytes_sent() const {
  const Traffic all = workers_ ? workers_->traffic() : mesh_.traffic();
  return all.total_bytes() + (servers_ ? servers_->traffic().total_bytes() : 0);
}

StepResult Trainer::make_step(std::span<const Batch> batches, int64_t made, double lr) {
  if (servers_) return push_step(batches, made, lr);
  const double weight = weight_of_step(made);
  StepResult result = engine_.step(batches, weight, lr, plan_.gradient_clipping);
  if (local_) finish_local_step(result, made + 1, weight);
  return result;
}

/// Loss and norm of a step are known when its update is: those of `staleness` steps before. Until there are such, the
/// loss is the one of this rank.
StepResult Trainer::push_step(std::span<const Batch> batches, int64_t made, double lr) {
  const double weight = weight_of_step(made);
  StepResult result = engine_.pass(batches, weight);
  servers_->push({.loss_sum = result.loss,
                  .total_weight = weight,
                  .lr = lr,
                  .max_norm = plan_.gradient_clipping,
                  .stop = engine_.wants_stop()});
  result.loss /= static_cast<double>(sampler_.targets_in_step(made, mesh_.group(Group::samples).rank(), 1));
  if (const auto landed = servers_->pull())
    result.loss = landed->loss, result.grad_norm = landed->grad_norm, result.stop = landed->stop;
  return result;
}

void Trainer::land_updates() {
  if (servers_) servers_->drain();
}

void Trainer::finish_local_step(StepResult& result, int64_t step, double weight) {
  local_->after_step(step);
  const double counted = result.skipped ? 0 : weight;
  std::array<double, 6> told{result.skipped ? 0 : result.loss * counted,
                             counted,
                             result.skipped ? 0 : result.grad_norm,
                             result.skipped ? 1.0 : 0.0,
                             result.stop ? 1.0 : 0.0,
                             static_cast<double>(engine_.skipped())};
  all_reduce_values(workers_->numbers(), context_, told);
  const double made = workers_->count() - told[3];
  if (made > 0) result.loss = told[0] / told[1], result.grad_norm = told[2] / made;
  result.skipped = told[3] > 0;
  result.stop = told[4] > 0;
  skipped_by_workers_ = static_cast<int64_t>(told[5]);
}

LocalStepsInfo Trainer::worker_info() {
  const std::vector<double> model = decoder_.state();
  const LossScaler::State scale = engine_.scaler().state();
  const size_t width = 5 + model.size(), count = static_cast<size_t>(workers_->count());
  std::vector<double> all(width * count);
  const auto of = [&](size_t worker) { return all.begin() + static_cast<std::ptrdiff_t>(worker * width); };
  const std::array<double, 5> mine{static_cast<double>(engine_.skipped()), scale.scale,
                                   static_cast<double>(scale.steps), static_cast<double>(scale.last_overflow),
                                   static_cast<double>(scale.hysteresis)};
  const auto own = of(static_cast<size_t>(workers_->index()));
  std::copy(model.begin(), model.end(), std::copy(mine.begin(), mine.end(), own));
  all_reduce_values(workers_->numbers(), context_, all);
  LocalStepsInfo info{.options = local_->options(), .workers = {}};
  for (size_t worker = 0; worker < count; ++worker) {
    const auto at = of(worker);
    const auto whole = [&](int i) { return static_cast<int64_t>(at[i]); };
    info.workers.push_back(
        {whole(0), {at[1], whole(2), whole(3), whole(4)}, {at + 5, at + static_cast<std::ptrdiff_t>(width)}});
  }
  return info;
}

void Trainer::resume(Checkpoint& checkpoint) {
  const CheckpointInfo& info = checkpoint.info();
  LocalStepsInfo::Worker own{info.skipped, info.loss_scale, info.model_state};
  if (info.local && !info.local->workers.empty()) {
    const size_t count = info.local->workers.size(), index = workers_ ? static_cast<size_t>(workers_->index()) : 0;
    own = info.local->workers[index % count];
  }
  engine_.set_skipped(own.skipped);
  if (!resume_worker(checkpoint)) model_.load(checkpoint, info.step - own.skipped);
  if (info.pending) model_.load_pending_update(checkpoint, *info.pending);
  take_up_rank_states(checkpoint);
  if (!decoder_.restore(own.model_state))
    notes_.push_back("the checkpoint holds no scales for fp8 as it is configured now: they start anew");
  if (plan_.loss_scale) engine_.scaler().restore(own.loss_scale);
}

void Trainer::take_up_rank_states(const Checkpoint& checkpoint) {
  const std::string dropped = checkpoint.fill_rank_states(model_);
  if (dropped.empty()) return;
  require<ConfigError>(!model_.optimizer().needs_own_tensors(),
                       "{}; this optimizer cannot go on without: resume on as many ranks, or start a new run from "
                       "the exported weights",
                       dropped);
  notes_.push_back(dropped);
}

bool Trainer::resume_worker(Checkpoint& checkpoint) {
  const CheckpointInfo& info = checkpoint.info();
  if (!info.local && !local_) return false;
  const int index = workers_ ? workers_->index() : 0;
  const int64_t updates = info.step - engine_.skipped();
  if (!info.local) {
    model_.load(checkpoint, updates);
    local_->begin();
    notes_.push_back("the checkpoint is of a run without local steps: workers begin from its weights");
    return true;
  }
  const LocalStepsOptions& then = info.local->options;
  const auto count = static_cast<int>(info.local->workers.size());
  const bool same = local_ && count == workers_->count() && then.sync_every == local_->options().sync_every &&
                    then.fragments == local_->options().fragments && then.delay == local_->options().delay;
  checkpoint.choose_worker(index % count, /*own_masters=*/same);
  model_.load(checkpoint, updates);
  if (same) checkpoint.choose_worker(index % count, /*own_masters=*/false);
  if (local_) local_->load(checkpoint, info.step, same);
  if (!same)
    notes_.push_back(fmt::format(
        "the checkpoint is of {} workers that met every {} steps{}: the run goes on from the weights that they agreed "
        "on last, with inner optimizer states of {}; what they have learned since is lost",
        count, then.sync_every, local_ ? "" : ", and this run is of none",
        workers_ && workers_->count() > 1 ? "theirs in turn" : "the first"));
  return true;
}

}  // namespace nought
