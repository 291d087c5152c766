#include "nought/zero/rotating_servers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "nought/base/timing.h"
#include "nought/optim/clipping.h"

namespace nought {

RotatingServers::RotatingServers(ShardedModel& model, std::unique_ptr<Communicator> group,
                                 std::unique_ptr<Communicator> guard, int64_t staleness, double gradient_factor)
    : model_(model),
      group_(std::move(group)),
      guard_(std::move(guard)),
      staleness_(staleness),
      gradient_factor_(gradient_factor),
      segments_(segments_of(model.model().units(), /*trainable=*/true)) {
  require(model_.options().local_gradients, "servers add gradients that the model would add, too");
  const Context& context = model_.context();
  const ShardedModel::Options& options = model_.options();
  sums_ = context.zeros({static_cast<int64_t>(model_.model().units().size()) + 2}, DType::f64, Category::workspace);
  room_ = context.zeros({1}, DType::f64, Category::workspace);
  slots_.resize(static_cast<size_t>(staleness_) + 1);
  histogram_.resize(slots_.size());
  for (Slot& slot : slots_)
    for (const SegmentIndex at : segments_) {
      const Shape whole{model_.residency().partition(at).padded()};
      slot.gradients.push_back(context.zeros(whole, options.gradient_dtype, Category::gradients));
      slot.parameters.push_back(context.zeros(whole, model_.residency().dtype(at), Category::parameters));
    }
}

RotatingServers::~RotatingServers() {
  guard_.reset();  // if an exception ends this rank, what its servers wait for never comes
  for (const Slot& slot : slots_) {
    try {
      slot.done.wait();
    } catch (const std::exception&) {  // it is thrown where it is waited for
    }
  }
}

void RotatingServers::begin(int64_t steps) {
  pushed_ = completed_ = steps;
  model_.settle();
  model_.optimizer().lane().begin_serving();
}

void RotatingServers::push(const Pushed& of) {
  const Context& context = model_.context();
  Slot& slot = slot_of(++pushed_);
  require(slot.done.ready(), "step {} is pushed while step {} is on its way in its place", pushed_,
          pushed_ - static_cast<int64_t>(slots_.size()));
  for (size_t i = 0; i < segments_.size(); ++i) context.copy(model_.local_gradients(segments_[i]), slot.gradients[i]);
  model_.discard_gradients();
  slot.of = of;
  slot.completed = {.step = pushed_, .staleness = pushed_ - 1 - completed_};
  last_ = slot.completed.staleness;
  ++histogram_[static_cast<size_t>(last_)];
  slot.done = model_.optimizer().lane().submit([this, &slot] { serve(slot); });
}

void RotatingServers::serve(Slot& slot) {
  ShardedOptimizer& optimizer = model_.optimizer();
  const Context& context = optimizer.lane().context();
  const auto states_of = [&](size_t i) -> const SegmentStates& { return optimizer.states().at(segments_[i]); };
  std::vector<Event> events;
  for (size_t i = 0; i < segments_.size(); ++i) {
    events.push_back(group_->reduce_scatter(slot.gradients[i], states_of(i).held));
  }
  for (const Event& event : events) event.wait();
  // The sums of squares by Unit, and the loss: added as the Engine adds them in synchronous training. What a thread
  // overlapped with the passes allocates would make their peak a matter of time, so it has room of its own.
  const int64_t units = sums_.numel() - 2;
  optimizer.lane().sum_held_squares(sums_.flat(0, units), room_);
  const std::array<double, 2> told{slot.of.loss_sum, slot.of.stop ? 1.0 : 0.0};
  context.upload(std::span<const double>(told), sums_.flat(units, units + 2));
  group_->all_reduce(sums_).wait();
  const std::vector<double> sums = context.to_host<double>(sums_);
  Completed& completed = slot.completed;
  completed.loss = sums[sums.size() - 2] / slot.of.total_weight;
  completed.stop = sums.back() > 0;
  completed.grad_norm = std::sqrt(std::accumulate(sums.begin(), sums.end() - 2, 0.0)) / gradient_factor_;
  require(std::isfinite(completed.loss) && std::isfinite(completed.grad_norm),
          "step {}: the loss is {} and the gradient norm {}; lower the learning rate, or train without "
          "training.async_data_parallel, which says where it was found first",
          completed.step, completed.loss, completed.grad_norm);
  optimizer.update_asynchronously(slot.of.lr, clip_factor(completed.grad_norm, slot.of.max_norm) / gradient_factor_);
  events.clear();
  for (size_t i = 0; i < segments_.size(); ++i) {
    const Interval own = states_of(i).scope;
    const Tensor mine = slot.parameters[i].flat(own.begin, own.end);
    context.copy(states_of(i).next, mine);
    events.push_back(group_->all_gather(mine, slot.parameters[i]));
  }
  for (const Event& event : events) event.wait();
}

void RotatingServers::complete(std::vector<Completed>& completed) {
  Slot& slot = slot_of(completed_ + 1);
  waited_ += seconds_of([&] { slot.done.wait(); });
  for (size_t i = 0; i < segments_.size(); ++i) model_.take_parameters(segments_[i], slot.parameters[i]);
  slot.done = {};
  ++completed_;
  completed.push_back(slot.completed);
}

std::optional<RotatingServers::Completed> RotatingServers::pull() {
  std::vector<Completed> completed;
  while (pushed_ - completed_ > staleness_) complete(completed);
  if (completed.empty()) return std::nullopt;
  return completed.back();
}

std::vector<RotatingServers::Completed> RotatingServers::drain() {
  std::vector<Completed> completed;
  while (completed_ < pushed_) complete(completed);
  return completed;
}

}  // namespace nought
