#include "nought/zero/local_steps.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "nought/comm/flight_recorder.h"
#include "nought/zero/placement.h"

namespace nought {

LocalSteps::LocalSteps(ShardedModel& model, const Workers& workers, const LocalStepsOptions& options)
    : model_(model), workers_(workers), options_(options) {
  const Context& context = model_.context();
  const auto& units = model_.model().units();
  const auto count = static_cast<int64_t>(units.size());
  require<ConfigError>(options_.fragments <= count,
                       "training.diloco.num_fragments = {}: the model has {} Units, and a fragment takes one at least",
                       options_.fragments, count);
  const ShardedModel::Options& sharding = model_.options();
  require<ConfigError>(sharding.dtype == DType::f32 || sharding.optimizer.master_weights,
                       "local steps need fp32 masters, or fp32 parameters: an outer step is lost in {} weights",
                       name_of(sharding.dtype));
  for (const SegmentIndex at : segments_of(units, /*trainable=*/true)) {
    const int64_t shard = model_.residency().partition(at).shard();
    Segment segment{.at = at,
                    .fragment = static_cast<size_t>(static_cast<int64_t>(at.unit) * options_.fragments / count)};
    segment.anchor = context.zeros({shard}, DType::f32, Category::optimizer);
    if (options_.momentum != 0) segment.momentum = context.zeros({shard}, DType::f32, Category::optimizer);
    segments_.push_back(std::move(segment));
  }
  last_synchronized_.assign(static_cast<size_t>(options_.fragments), 0);
}

template <class F>
void LocalSteps::for_each_piece(const Segment& segment, const F& f) const {
  const Unit& unit = *model_.model().units()[segment.at.unit];
  const Residency& residency = model_.residency();
  const Interval mine = residency.partition(segment.at).owned(residency.ranks(segment.at).rank());
  for (const ParameterPiece& piece : pieces_in(unit, segment.at.segment, mine))
    f(unit.parameters()[piece.parameter], piece.in_parameter,
      Interval{piece.in_segment.begin - mine.begin, piece.in_segment.end - mine.begin});
}

void LocalSteps::read_anchor(Segment& segment) const {
  model_.optimizer().kept().read_masters(segment.at, segment.anchor);
}

void LocalSteps::begin() {
  model_.settle();
  for (Segment& segment : segments_) read_anchor(segment);
}

void LocalSteps::load(const StateSource& source, int64_t step, bool exact) {
  const Context& context = model_.context();
  const std::optional<size_t> pending = exact ? on_its_way(step) : std::nullopt;
  for (Segment& segment : segments_) {
    const bool has_delta = segment.fragment == pending;
    if (has_delta) segment.delta = context.zeros(segment.anchor.shape(), DType::f32, Category::communication);
    for_each_piece(segment, [&](const Parameter& parameter, Interval in_parameter, Interval in_shard) {
      const auto read = [&](StateKind kind, const Tensor& into) {
        fill(context, source, kind, parameter, global_elements(parameter, model_.mesh(), in_parameter),
             into.flat(in_shard.begin, in_shard.end));
      };
      read(StateKind::master, segment.anchor);
      if (segment.momentum) read(StateKind::outer_momentum, segment.momentum);
      if (has_delta) read(StateKind::outer_delta, segment.delta);
    });
  }
  for (size_t fragment = 0; fragment < last_synchronized_.size(); ++fragment) {
    // The last synchronization that began before, or 0.
    const int64_t synchronizations = step / options_.interval() - static_cast<int64_t>(fragment) - 1;
    last_synchronized_[fragment] =
        synchronizations < 0
            ? 0
            : (synchronizations / options_.fragments * options_.fragments + static_cast<int64_t>(fragment) + 1) *
                  options_.interval();
    if (!exact) last_synchronized_[fragment] = step;
  }
}

size_t LocalSteps::fragment_at(int64_t step) const {
  return static_cast<size_t>((step / options_.interval() - 1) % options_.fragments);
}

std::optional<size_t> LocalSteps::on_its_way(int64_t step) const {
  if (options_.delay == 0 || step < options_.interval() || step % options_.interval() >= options_.delay) return {};
  return fragment_at(step);
}

std::pair<size_t, size_t> LocalSteps::segments_of_fragment(size_t fragment) const {
  const auto before = [](const Segment& segment, size_t wanted) { return segment.fragment < wanted; };
  const auto first = std::lower_bound(segments_.begin(), segments_.end(), fragment, before);
  const auto last = std::lower_bound(first, segments_.end(), fragment + 1, before);
  return {static_cast<size_t>(first - segments_.begin()), static_cast<size_t>(last - segments_.begin())};
}

/// delta = anchor - masters, which the peers then add up.
void LocalSteps::start(Segment& segment) const {
  const Context& context = model_.context();
  segment.delta = context.zeros(segment.anchor.shape(), DType::f32, Category::communication);
  model_.optimizer().kept().read_masters(segment.at, segment.delta);
  context.run(ApplyDirection{.parameter = segment.delta, .direction = segment.anchor, .step = -1, .keep = -1});
  const FlightSubject subject(workers_.peers(), model_.model().units()[segment.at.unit]->name());
  segment.summed = workers_.peers().all_reduce(segment.delta);
}

void LocalSteps::step_outside(Segment& segment) const {
  const Context& context = model_.context();
  workers_.peers().wait(std::exchange(segment.summed, {}), *context.stream);
  context.run(Sgd{.parameter = segment.anchor,
                  .momentum_buffer = segment.momentum,
                  .gradient = segment.delta,
                  .lr = options_.lr,
                  .momentum = options_.momentum,
                  .gradient_scale = 1.0 / workers_.count(),
                  .nesterov = options_.nesterov && options_.momentum != 0});
  segment.delta = {};
}

void LocalSteps::go_on(size_t first, size_t last, double keeps) {
  const Context& context = model_.context();
  const Residency& residency = model_.residency();
  model_.change_masters([&](ShardedOptimizer& optimizer) {
    for (size_t i = first; i < last; ++i) {
      const Segment& segment = segments_[i];
      const Partition& partition = residency.partition(segment.at);
      Communicator& ranks = residency.ranks(segment.at);
      if (residency.policy(segment.at).shard_optimizer || ranks.size() == 1) {
        optimizer.mix_masters(segment.at, segment.anchor, keeps);
        continue;
      }
      // Below stage 1 every rank has all masters of its worker.
      const Tensor whole = context.empty({partition.padded()}, DType::f32, Category::communication);
      ranks.wait(ranks.all_gather(segment.anchor, whole), *context.stream);
      optimizer.mix_masters(segment.at, whole, keeps);
    }
  });
}

void LocalSteps::synchronize(size_t fragment, double keeps) {
  const auto [first, last] = segments_of_fragment(fragment);
  // A fragment that was begun before is on its way as a whole; else the next segment travels while one is updated.
  for (size_t i = first; i < last; ++i) {
    if (!segments_[i].delta) start(segments_[i]);
    if (i + 1 < last && !segments_[i + 1].delta) start(segments_[i + 1]);
    step_outside(segments_[i]);
  }
  go_on(first, last, keeps);
}

void LocalSteps::after_step(int64_t step) {
  if (step < options_.interval()) return;
  const int64_t past = step % options_.interval();
  const size_t fragment = fragment_at(step);
  if (past == 0) {
    last_synchronized_[fragment] = step;
    model_.settle();
    const auto [first, last] = segments_of_fragment(fragment);
    for (size_t i = first; options_.delay > 0 && i < last; ++i) start(segments_[i]);
  }
  if (past == options_.delay) synchronize(fragment, options_.keeps_local);
}

void LocalSteps::finish(int64_t step) {
  model_.settle();
  std::vector<size_t> order(last_synchronized_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto on_its_way = [&](size_t fragment) {
    const auto [first, last] = segments_of_fragment(fragment);
    return first < last && segments_[first].delta;
  };
  // What is on its way ends first, so that its deltas are gone when those of others need room.
  std::stable_partition(order.begin(), order.end(), on_its_way);
  for (const size_t fragment : order) {
    if (on_its_way(fragment) || last_synchronized_[fragment] != step) {
      synchronize(fragment, /*keeps=*/0);
    } else if (options_.keeps_local > 0) {
      const auto [first, last] = segments_of_fragment(fragment);
      go_on(first, last, /*keeps=*/0);
    }
    last_synchronized_[fragment] = step;
  }
}

std::vector<LocalSteps::Owned> LocalSteps::owned() {
  std::vector<Owned> all;
  if (workers_.index() != 0) return all;
  for (Segment& segment : segments_) {
    if (!writes_for_all(model_.model().units()[segment.at.unit]->segments()[segment.at.segment], model_.mesh()))
      continue;
    if (segment.delta) workers_.peers().wait(segment.summed, *model_.context().stream);
    for_each_piece(segment, [&](const Parameter& parameter, Interval in_parameter, Interval in_shard) {
      const auto add = [&](StateKind kind, const Tensor& of) {
        if (of) all.push_back({&parameter, kind, in_parameter, of.flat(in_shard.begin, in_shard.end)});
      };
      add(StateKind::master, segment.anchor);
      add(StateKind::outer_momentum, segment.momentum);
      add(StateKind::outer_delta, segment.delta);
    });
  }
  return all;
}

}  // namespace nought
