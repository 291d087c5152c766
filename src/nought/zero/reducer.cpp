#include "nought/zero/reducer.h"

#include <algorithm>
#include <utility>

namespace nought {

namespace {
/// One Unit's gradients may be on the wire while the next Unit's are being written: two whole buffers rotate.
constexpr size_t kFlights = 1;
}  // namespace

Reducer::Reducer(const Context& context, Communicator& ranks, Policy policy, DType dtype, bool overlap,
                 const std::vector<std::unique_ptr<Unit>>& units)
    : context_(context), ranks_(ranks), policy_(policy), dtype_(dtype), overlap_(overlap) {
  for (const auto& unit : units) {
    State state;
    state.partition = Partition(unit->numel(), ranks_.size());
    state.name = unit->name();
    for (const Parameter& parameter : unit->parameters()) state.ranges.push_back(parameter.range);
    state.written.assign(state.ranges.size(), false);
    if (policy_.shard_gradients) {
      state.shard = context_.zeros({state.partition.shard()}, dtype_, Category::gradients);
    } else {
      state.whole = context_.zeros({state.partition.padded()}, dtype_, Category::gradients);
    }
    states_.push_back(std::move(state));
  }
}

void Reducer::begin_micro_batch(bool last) { last_micro_batch_ = last; }

GradSink Reducer::sink(size_t unit, size_t first, size_t last) {
  State& state = states_[unit];
  if (!state.whole) {
    while (flights_.size() > kFlights) land_oldest();
    state.whole = context_.empty({state.partition.padded()}, dtype_, Category::gradients);
  }
  const bool accumulate = state.written[first];
  for (size_t i = first; i <= last; ++i) {
    require(state.written[i] == accumulate,
            "unit {}: parameters {} to {} are written as one, but some alone before: use the same view everywhere",
            state.name, first, last);
    state.written[i] = true;
  }
  return {state.whole.flat(state.ranges[first].begin, state.ranges[last].end), accumulate};
}

void Reducer::clear_unwritten(State& state) {
  if (!state.whole) state.whole = context_.empty({state.partition.padded()}, dtype_, Category::gradients);
  for (size_t i = 0; i < state.ranges.size(); ++i)
    if (!state.written[i]) zero(state.whole.flat(state.ranges[i].begin, state.ranges[i].end));
  zero(state.whole.flat(state.partition.size(), state.partition.padded()));
}

void Reducer::finish(size_t unit) {
  State& state = states_[unit];
  if (policy_.shard_gradients) {
    clear_unwritten(state);
    reduce_to_shard(unit);
  } else if (last_micro_batch_) {
    clear_unwritten(state);
    reduce_whole(state);
  }
  if (!overlap_) settle();
}

void Reducer::reduce_whole(State& state) {
  if (ranks_.size() == 1) return;
  const Interval own = state.partition.owned(ranks_.rank());
  const Tensor mine = state.whole.flat(own.begin, own.end);
  state.reduction = ranks_.reduce_scatter(state.whole, mine);
  if (!policy_.shard_optimizer) state.reduction = ranks_.all_gather(mine, state.whole);
}

void Reducer::reduce_to_shard(size_t unit) {
  State& state = states_[unit];
  Tensor sum;
  if (state.shard_begun) sum = context_.empty({state.partition.shard()}, dtype_, Category::gradients);
  Event event = ranks_.reduce_scatter(state.whole, state.shard_begun ? sum : state.shard);
  flights_.push_back({unit, event, std::exchange(state.whole, {}), sum});
  state.shard_begun = true;
  std::fill(state.written.begin(), state.written.end(), false);
}

void Reducer::land_oldest() {
  Flight flight = std::move(flights_.front());
  flights_.pop_front();
  flight.event.wait();
  if (flight.sum) context_.run(AddTo{.x = flight.sum, .into = states_[flight.unit].shard});
}

void Reducer::settle() {
  while (!flights_.empty()) land_oldest();
  for (State& state : states_) state.reduction.wait();
}

Tensor Reducer::owned(size_t unit) const {
  const State& state = states_[unit];
  if (policy_.shard_gradients) return state.shard;
  const Interval own = state.partition.owned(ranks_.rank());
  return state.whole.flat(own.begin, own.end);
}

Tensor Reducer::reduced(size_t unit) const { return policy_.shard_optimizer ? owned(unit) : states_[unit].whole; }

void Reducer::reset() {
  for (State& state : states_) {
    std::fill(state.written.begin(), state.written.end(), false);
    state.shard_begun = false;
    state.reduction = {};
  }
}

}  // namespace nought
