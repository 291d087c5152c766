#include "nought/train/run_steps.h"

#include <algorithm>
#include <array>
#include <utility>

namespace nought {

BatchLayout batch_layout(const RunPlan& plan, const Mesh& mesh, const Workers* workers) {
  const Communicator& ranks = mesh.group(Group::samples);
  const int count = workers == nullptr ? 1 : workers->count(), index = workers == nullptr ? 0 : workers->index();
  return {.micro_batch = plan.layout.micro_batch,
          .accumulation = plan.layout.accumulation,
          .world_size = ranks.size() * count,
          .rank = index * ranks.size() + ranks.rank(),
          .together = plan.layout.read_together()};
}

RunSteps::RunSteps(const RunPlan& plan, Communicator& world, const Workers* workers, const StepSource& source,
                   ShardedModel& model, Engine& engine)
    : plan_(plan), world_(world), workers_(workers), source_(source), model_(model), engine_(engine) {
  if (workers_ != nullptr) local_.emplace(model_, *workers_, *plan_.layout.local_steps);
}

// --- beginning ---

void RunSteps::begin() {
  if (local_) local_->begin();
  begin_serving();
}

void RunSteps::begin_serving() {
  if (!plan_.layout.staleness) return;
  const int64_t steps = made();
  auto group = world_.split(0, world_.rank()), guard = world_.split(0, world_.rank());
  servers_ = std::make_unique<RotatingServers>(model_, std::move(group), std::move(guard), *plan_.layout.staleness,
                                               plan_.gradient_factor);
  servers_->begin(steps);
}

std::vector<std::string> RunSteps::resume(Checkpoint& checkpoint) {
  std::vector<std::string> notes;
  const CheckpointInfo& info = checkpoint.info();
  LocalStepsInfo::Worker own{info.skipped, info.loss_scale, info.model_state};
  if (info.local && !info.local->workers.empty()) {
    const size_t count = info.local->workers.size(),
                 index = workers_ != nullptr ? static_cast<size_t>(workers_->index()) : 0;
    own = info.local->workers[index % count];
  }
  engine_.set_skipped(own.skipped);
  if (!resume_worker(checkpoint, notes)) model_.load(checkpoint, info.step - own.skipped);
  if (info.pending) model_.load_pending_update(checkpoint, *info.pending);
  if (const std::string dropped = checkpoint.fill_rank_states(model_); !dropped.empty()) {
    const bool of_optimizer = model_.optimizer().needs_rank_local_tensors();
    require<ConfigError>(!of_optimizer && !model_.options().sparse_pruning,
                         "{}; {} cannot go on without: resume on as many ranks, or start a new run from the exported "
                         "weights",
                         dropped, of_optimizer ? "this optimizer" : "sparse_pruning");
    notes.push_back(dropped);
  }
  if (!model_.model().restore(own.model_state))
    notes.emplace_back("the checkpoint holds no scales for fp8 as it is configured now: they start anew");
  if (plan_.loss_scale) engine_.scaler().restore(own.loss_scale);
  begin_serving();
  return notes;
}

void RunSteps::resume(const ForeignStates& states) {
  engine_.set_skipped(states.skipped());
  model_.load(states, states.updates());
  if (const auto& scale = states.loss_scale(); scale && plan_.loss_scale && plan_.loss_scale->static_scale == 0)
    engine_.scaler().restore({scale->scale, scale->steps, scale->last_overflow, scale->hysteresis});
  begin();
}

bool RunSteps::resume_worker(Checkpoint& checkpoint, std::vector<std::string>& notes) {
  const CheckpointInfo& info = checkpoint.info();
  if (!info.local && !local_) return false;
  const int index = workers_ != nullptr ? workers_->index() : 0;
  const int64_t updates = info.step - engine_.skipped();
  if (!info.local) {
    model_.load(checkpoint, updates);
    local_->begin();
    notes.emplace_back("the checkpoint is of a run without local steps: workers begin from its weights");
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
    notes.push_back(
        fmt::format("the checkpoint is of {} workers that synchronized every {} steps{}: the run goes on from the "
                    "weights that they agreed "
                    "on last, with inner optimizer states of {}; what they have learned since is lost",
                    count, then.sync_every, local_ ? "" : ", and this run is of none",
                    workers_ != nullptr && workers_->count() > 1 ? "theirs in turn" : "the first"));
  return true;
}

// --- steps ---

StepResult RunSteps::make(std::span<const Batch> batches, double lr) {
  const int64_t number = made();
  if (servers_) return push(batches, number, lr);
  const double weight = weight_of_step(number);
  StepResult result = engine_.step(batches, weight, lr, plan_.gradient_clipping);
  if (local_) finish_local_step(result, number + 1, weight);
  return result;
}

double RunSteps::weight_of_step(int64_t step) const {
  if (workers_ == nullptr) return source_.weight_of_step(step);
  const int ranks = model_.mesh().group(Group::samples).size();
  return source_.weight_of_step(step, workers_->index() * ranks, ranks);
}

/// Loss and norm of a step are known when its update is: those of `staleness` steps before. Until there are such, the
/// loss is the one of this rank.
StepResult RunSteps::push(std::span<const Batch> batches, int64_t number, double lr) {
  const double weight = weight_of_step(number);
  StepResult result = engine_.pass(batches, weight);
  servers_->push({.loss_sum = result.loss,
                  .total_weight = weight,
                  .lr = lr,
                  .max_norm = plan_.gradient_clipping,
                  .stop = engine_.wants_stop()});
  result.loss /= source_.weight_of_step(number, model_.mesh().group(Group::samples).rank(), 1);
  if (const auto completed = servers_->pull())
    result.loss = completed->loss, result.grad_norm = completed->grad_norm, result.stop = completed->stop;
  return result;
}

void RunSteps::finish_local_step(StepResult& result, int64_t step, double weight) {
  local_->after_step(step);
  const double counted = result.skipped ? 0 : weight;
  std::array<double, 6> told{result.skipped ? 0 : result.loss * counted,
                             counted,
                             result.skipped ? 0 : result.grad_norm,
                             result.skipped ? 1.0 : 0.0,
                             result.stop ? 1.0 : 0.0,
                             static_cast<double>(engine_.skipped())};
  all_reduce_values(workers_->numbers(), model_.context(), told);
  const double updated = workers_->count() - told[3];
  if (updated > 0) result.loss = told[0] / told[1], result.grad_norm = told[2] / updated;
  result.skipped = told[3] > 0;
  result.stop = told[4] > 0;
  skipped_by_workers_ = static_cast<int64_t>(told[5]);
}

void RunSteps::drain() {
  if (servers_) servers_->drain();
}

void RunSteps::apply_last_update() {
  if (made() < plan_.max_steps) return;
  drain();
  if (model_.optimizer().pending()) model_.finish_pending_update();
}

void RunSteps::finish() {
  if (local_) local_->finish(made());
}

void RunSteps::end_serving() {
  if (servers_) model_.optimizer().lane().end_serving();
}

// --- what is told of them ---

int64_t RunSteps::bytes_sent() const {
  const Traffic all = workers_ != nullptr ? workers_->traffic() : model_.mesh().traffic();
  return all.total_bytes() + (servers_ ? servers_->traffic().total_bytes() : 0);
}

std::optional<StalenessReport> RunSteps::staleness() const {
  if (!servers_) return std::nullopt;
  return StalenessReport{servers_->last_staleness(), servers_->histogram(), servers_->waited()};
}

std::optional<LocalStepsInfo> RunSteps::worker_info() {
  if (!local_) return std::nullopt;
  const std::vector<double> model = model_.model().state();
  const LossScaler::State scale = engine_.scaler().state();
  const size_t width = 5 + model.size(), count = static_cast<size_t>(workers_->count());
  std::vector<double> all(width * count);
  const auto of = [&](size_t worker) { return all.begin() + static_cast<std::ptrdiff_t>(worker * width); };
  const std::array<double, 5> mine{static_cast<double>(engine_.skipped()), scale.scale,
                                   static_cast<double>(scale.steps), static_cast<double>(scale.last_overflow),
                                   static_cast<double>(scale.hysteresis)};
  const auto own = of(static_cast<size_t>(workers_->index()));
  std::copy(model.begin(), model.end(), std::copy(mine.begin(), mine.end(), own));
  all_reduce_values(workers_->numbers(), model_.context(), all);
  LocalStepsInfo info{.options = local_->options(), .workers = {}};
  for (size_t worker = 0; worker < count; ++worker) {
    const auto at = of(worker);
    const auto whole = [&](int i) { return static_cast<int64_t>(at[i]); };
    info.workers.push_back(
        {whole(0), {at[1], whole(2), whole(3), whole(4)}, {at + 5, at + static_cast<std::ptrdiff_t>(width)}});
  }
  return info;
}

}  // namespace nought
