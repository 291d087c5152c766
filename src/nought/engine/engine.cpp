#include "nought/engine/engine.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "nought/comm/flight_recorder.h"
#include "nought/engine/locate.h"
#include "nought/optim/clipping.h"

namespace nought {

namespace {

/// In a binary tree, as gradients are with virtual ranks: as many as a power of two, or one.
double pairwise_sum(std::span<const double> values) {
  if (values.size() == 1) return values.front();
  const size_t half = values.size() / 2;
  return pairwise_sum(values.first(half)) + pairwise_sum(values.subspan(half));
}

}  // namespace

bool StepResult::finite() const { return std::isfinite(loss) && std::isfinite(grad_norm); }

std::string Engine::explain(const StepResult& result, const StepSchedule& schedule,
                            std::span<const Batch> micro_batches, double total_weight) {
  const int64_t step = model_.optimizer().updates() + skipped_ + 1;
  const double scale = result.loss_scale * gradient_factor_ / total_weight;
  return fmt::format("step {}: the loss is {} and the gradient norm {}; first found at {}", step, result.loss,
                     result.grad_norm, locate_nonfinite(model_, schedule, micro_batches, scale));
}

StepSchedule Engine::schedule_of(std::span<const Batch> micro_batches, double total_weight) const {
  require(!micro_batches.empty() && total_weight > 0, "a step needs at least one target");
  StepSchedule schedule = schedules_.step(static_cast<int64_t>(micro_batches.size()));
  require(schedule.micro_batches() == static_cast<int64_t>(micro_batches.size()),
          "a step of {} micro-batches has the schedule {}", micro_batches.size(), schedule);
  require(schedule.instructions().back().action == Action::update, "schedule {} ends without an update", schedule);
  return schedule;
}

Engine::Run Engine::begin(const StepSchedule& schedule, std::span<const Batch> micro_batches,
                          double total_weight) const {
  Run run{.schedule = schedule, .batches = micro_batches, .total_weight = total_weight};
  run.gradient_scale = scaler_.scale() * gradient_factor_ / total_weight;
  // Losses and norms are added up on the device: all come to the host together, once in a step.
  run.loss_sum = model_.context().zeros({std::max(virtual_ranks_, 1)}, DType::f64, Category::workspace);
  if (virtual_ranks_ > 0 && schedule.instructions().back().action == Action::update)  // no evaluation
    run.loss_places = virtual_ranks_of(std::ssize(micro_batches));
  return run;
}

std::vector<int64_t> Engine::virtual_ranks_of(int64_t micro_batches) const {
  const Communicator& readers = model_.mesh().group(Group::samples);
  const BatchLayout layout{.accumulation = virtual_ranks_ / readers.size(),
                           .world_size = readers.size(),
                           .rank = readers.rank(),
                           .together = model_.options().read_together(model_.mesh().grid().size(Axis::shard))};
  require(micro_batches <= layout.accumulation, "a step of {} virtual ranks has {} micro-batches on each of {} ranks",
          virtual_ranks_, micro_batches, readers.size());
  std::vector<int64_t> places;
  for (int64_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch) places.push_back(layout.part(micro_batch));
  return places;
}

void Engine::execute(Run& run, std::optional<Action> end) {
  const std::vector<Instruction>& list = run.schedule.instructions();
  Passes passes(model_, run.schedule, run.batches,
                {.gradient_scale = run.gradient_scale, .loss_sum = run.loss_sum, .loss_places = run.loss_places});
  model_.expect(passes.order());
  for (size_t place = 0; place < list.size() && list[place].action != end; ++place) {
    if (list[place].action == Action::reduce) {
      reduce(run);
    } else if (list[place].action == Action::update) {
      update(run);
    } else {
      run_pass(run, passes, place);
    }
  }
  model_.expect({});
}

void Engine::run_pass(Run& run, Passes& passes, size_t place) {
  const Communicator& world = model_.mesh().world();
  const Instruction& instruction = run.schedule.instructions()[place];
  if (!is_pass(instruction.action)) return passes.run(place);
  // An evaluation is no phase of a step.
  const bool in_step = run.schedule.walks_back(instruction.micro_batch, instruction.chunk);
  const bool forward = instruction.action == Action::forward;
  const TimedScope scope(in_step ? world.timeline() : nullptr, TraceEventKind::phase, forward ? "forward" : "backward");
  note_phase(world, !in_step ? "validation" : forward ? "forward" : "backward");
  passes.run(place);
  (forward ? run.result.memory.forward : run.result.memory.backward) = alive();
}

void Engine::reduce(Run& run) {
  const TimedScope scope(model_.mesh().world().timeline(), TraceEventKind::phase, "optimizer");
  note_phase(model_.mesh().world(), "reduction");
  const Context& context = model_.context();
  const Tensor squares = model_.finish_gradients();
  const Communicator& deciders = model_.mesh().group(Group::decisions);
  const std::vector<double> mine = share_ ? share_() : std::vector<double>();
  // The wish to stop, and a place for what each rank shares.
  std::vector<double> told(1 + mine.size() * static_cast<size_t>(deciders.size()));
  told[0] = wants_stop_ && wants_stop_() ? 1.0 : 0.0;
  std::copy(mine.begin(), mine.end(), told.begin() + 1 + deciders.rank() * static_cast<std::ptrdiff_t>(mine.size()));
  const Tensor wishes = context.upload<double>({static_cast<int64_t>(told.size())}, told, Category::workspace);
  // One collective where the groups are all ranks, which then agree on whether the step is to be skipped.
  const std::vector<double> sums = sums_on_host(
      model_.mesh(), context, {{Group::norm, squares}, {Group::losses, run.loss_sum}, {Group::decisions, wishes}},
      model_.model().step_values(context));
  const auto loss = sums.begin() + squares.numel(), told_by_all = loss + run.loss_sum.numel();
  const auto others = told_by_all + wishes.numel();
  model_.model().finish_step({others, sums.end()});
  if (spikes_) run.sums.assign(sums.begin(), told_by_all);
  run.result.stop = *told_by_all > 0;
  run.result.shared.assign(told_by_all + 1, others);
  run.result.loss = pairwise_sum({loss, told_by_all}) / run.total_weight;
  run.result.grad_norm = std::sqrt(std::accumulate(sums.begin(), loss, 0.0)) / (scaler_.scale() * gradient_factor_);
  run.result.loss_scale = scaler_.scale();
}

void Engine::update(Run& run) {
  if (spikes_) repeat_if_spike(run);
  note_phase(model_.mesh().world(), "update");
  StepResult& result = run.result;
  result.skipped = !result.finite();  // the sums are those of all ranks, so all of them agree
  const bool changed = result.skipped && model_.abandon_early_update();
  const double factor = clip_factor(result.grad_norm, run.max_norm);
  if (model_.undoes_early_updates() && awaits_norm(run.max_norm))
    result.guess = guess_.add(!result.skipped && factor == 1 && result.spike.empty());
  if (result.skipped && !scaler_.scales()) {
    result.nonfinite = explain(result, run.schedule, run.batches, run.total_weight);
    if (on_nonfinite_ == OnNonfinite::stop)
      fail<Error>(
          "{}: {}; lower the learning rate, look at the data, or skip such steps with training.on_nonfinite = \"skip\"",
          result.nonfinite,
          changed ? "some weights are updated already: go on from the last checkpoint"
                  : "the weights are those of the step before");
  }
  if (result.skipped) {
    model_.discard_gradients();
    model_.finish_pending_update();
    ++skipped_;
  } else {
    const TimedScope scope(model_.mesh().world().timeline(), TraceEventKind::phase, "optimizer");
    model_.update(run.lr, factor / (result.loss_scale * gradient_factor_));
  }
  scaler_.update(result.skipped);
  result.memory.update = alive();
}

int64_t Engine::alive() const { return model_.context().memory->ledger().current_total(); }

StepResult Engine::accumulate(std::span<const Batch> micro_batches, double total_weight) {
  const StepSchedule schedule = schedule_of(micro_batches, total_weight);
  Run run = begin(schedule, micro_batches, total_weight);
  execute(run, Action::update);
  if (!run.result.finite()) fail<Error>("{}", explain(run.result, schedule, micro_batches, total_weight));
  return run.result;
}

StepResult Engine::step(std::span<const Batch> micro_batches, double total_weight, double lr, double max_norm) {
  const Memory::Step scope(*model_.context().memory);
  const StepSchedule schedule = schedule_of(micro_batches, total_weight);
  if (spikes_) state_before_ = model_.model().state();
  model_.start_pending_update();
  begin_early_update(lr, max_norm);
  Run run = begin(schedule, micro_batches, total_weight);
  run.lr = lr, run.max_norm = max_norm;
  execute(run);
  return run.result;
}

bool Engine::awaits_norm(double max_norm) const {
  return max_norm > 0 || scaler_.scales() || on_nonfinite_ == OnNonfinite::skip || spikes_;
}

void Engine::begin_early_update(double lr, double max_norm) {
  if (awaits_norm(max_norm) && !(model_.undoes_early_updates() && guess_.tries())) return;
  model_.begin_early_update(
      {.lr = lr, .gradient_scale = 1.0 / (scaler_.scale() * gradient_factor_), .max_norm = max_norm});
}

StepResult Engine::pass(std::span<const Batch> micro_batches, double total_weight) {
  const Memory::Step scope(*model_.context().memory);
  const StepSchedule schedule = schedule_of(micro_batches, total_weight);
  Run run = begin(schedule, micro_batches, total_weight);
  execute(run, Action::reduce);
  const Context& context = model_.context();
  run.result.loss = context.to_host<double>(run.loss_sum).front();
  if (const Tensor values = model_.model().step_values(context))
    model_.model().finish_step(context.to_host<double>(values));
  return run.result;
}

std::vector<double> Engine::evaluate_by_rank(std::span<const Batch> micro_batches) {
  const StepSchedule schedule = schedules_.evaluation(static_cast<int64_t>(micro_batches.size()));
  const Communicator& readers = model_.mesh().group(Group::samples);
  Run run = begin(schedule, micro_batches, 1);
  run.loss_sum = model_.context().zeros({readers.size()}, DType::f64, Category::workspace);
  run.loss_places.assign(micro_batches.size(), readers.rank());
  execute(run);
  return sums_on_host(model_.mesh(), model_.context(), {{Group::losses, run.loss_sum}});
}

double Engine::evaluate(std::span<const Batch> micro_batches, double total_weight) {
  const StepSchedule schedule = schedules_.evaluation(static_cast<int64_t>(micro_batches.size()));
  Run run = begin(schedule, micro_batches, total_weight);
  execute(run);
  return pairwise_sum(sums_on_host(model_.mesh(), model_.context(), {{Group::losses, run.loss_sum}})) / total_weight;
}

}  // namespace nought
