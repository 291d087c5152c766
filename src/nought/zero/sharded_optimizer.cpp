#include "nought/zero/sharded_optimizer.h"

#include <cmath>

namespace nought {

ShardedOptimizer::ShardedOptimizer(const Context& context, Communicator& ranks, Policy policy, DType dtype,
                                   AdamOptions options, const std::vector<std::unique_ptr<Unit>>& units,
                                   Residency& residency, Reducer& reducer)
    : context_(context),
      ranks_(ranks),
      policy_(policy),
      options_(options),
      units_(units),
      reducer_(reducer),
      residency_(residency) {
  require(dtype != DType::f64, "training runs in f32, bf16 or f16 with fp32 states, not in f64");
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    const Shape shape{scope(unit).size()};
    State state;
    state.parameter = policy_.shard_optimizer ? residency_.owned(unit) : residency_.stored(unit);
    state.master = dtype == DType::f32 ? state.parameter : context_.zeros(shape, DType::f32, Category::optimizer);
    state.exp_avg = context_.zeros(shape, DType::f32, Category::optimizer);
    state.exp_avg_sq = context_.zeros(shape, DType::f32, Category::optimizer);
    state.runs = decay_runs(*units_[unit], scope(unit), options_.decay_all);
    states_.push_back(std::move(state));
  }
}

Interval ShardedOptimizer::scope(size_t unit) const {
  const Partition& partition = residency_.partition(unit);
  return policy_.shard_optimizer ? partition.owned(ranks_.rank()) : Interval{0, partition.padded()};
}

double ShardedOptimizer::owned_sum_squares() {
  Tensor sum = context_.empty({1}, DType::f64, Category::workspace);
  double total = 0;
  for (size_t unit = 0; unit < states_.size(); ++unit) {
    context_.run(SumSquares{.x = reducer_.owned(unit), .out = sum});
    total += sum.item();
  }
  return total;
}

void ShardedOptimizer::update(double lr, double gradient_scale) {
  ++updates_;
  const auto step = static_cast<double>(updates_);
  for (size_t unit = 0; unit < states_.size(); ++unit) {
    const State& state = states_[unit];
    const Tensor gradient = reducer_.reduced(unit);
    const bool has_master = state.master.raw() != state.parameter.raw();
    for (const DecayRun& run : state.runs) {
      const int64_t begin = run.in_unit.begin - scope(unit).begin, end = run.in_unit.end - scope(unit).begin;
      context_.run(Adam{.parameter = state.master.flat(begin, end),
                        .exp_avg = state.exp_avg.flat(begin, end),
                        .exp_avg_sq = state.exp_avg_sq.flat(begin, end),
                        .gradient = gradient.flat(begin, end),
                        .parameter_copy = has_master ? state.parameter.flat(begin, end) : Tensor{},
                        .lr = lr,
                        .beta1 = options_.beta1,
                        .beta2 = options_.beta2,
                        .eps = options_.eps,
                        .weight_decay = run.decay ? options_.weight_decay : 0,
                        .bias1 = 1 - std::pow(options_.beta1, step),
                        .bias2 = 1 - std::pow(options_.beta2, step),
                        .gradient_scale = gradient_scale,
                        .decoupled_decay = options_.decoupled_decay});
    }
  }
}

Tensor ShardedOptimizer::state(size_t unit, StateKind kind) const {
  const State& state = states_[unit];
  switch (kind) {
    case StateKind::master:
      return state.master;
    case StateKind::exp_avg:
      return state.exp_avg;
    case StateKind::exp_avg_sq:
      return state.exp_avg_sq;
  }
  return {};
}

void ShardedOptimizer::load(const StateSource& source, int64_t updates) {
  updates_ = updates;
  for (size_t unit = 0; unit < states_.size(); ++unit) {
    for (StateKind kind : kStateKinds)
      for (const Piece& piece : pieces_in(*units_[unit], scope(unit))) {
        const int64_t begin = piece.in_unit.begin - scope(unit).begin;
        source.fill(kind, units_[unit]->parameters()[piece.parameter], piece.in_parameter,
                    state(unit, kind).flat(begin, begin + piece.in_unit.size()));
      }
    const State& each = states_[unit];
    if (each.master.raw() != each.parameter.raw()) context_.run(Cast{.x = each.master, .y = each.parameter});
  }
}

Tensor ShardedOptimizer::owned(size_t unit, StateKind kind) const {
  const Interval own = residency_.partition(unit).owned(ranks_.rank());
  const int64_t begin = own.begin - scope(unit).begin;
  return state(unit, kind).flat(begin, begin + own.size());
}

}  // namespace nought
