#include "nought/zero/reducer.h"

#include <algorithm>
#include <utility>

namespace nought {

namespace {
/// One Unit's gradients may be on the wire while the next Unit's are being written: two whole buffers rotate.
constexpr size_t kFlights = 1;
}  // namespace

Reducer::Reducer(const Context& context, Communicator& ranks, Policy policy, DType dtype, DType wire, bool overlap,
                 const std::vector<std::unique_ptr<Unit>>& units)
    : context_(context), ranks_(ranks), policy_(policy), dtype_(dtype), wire_(wire), overlap_(overlap) {
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

Tensor Reducer::to_wire(const Tensor& whole) const {
  if (wire_ == dtype_) return whole;
  const Tensor sent = context_.empty(whole.shape(), wire_, Category::communication);
  context_.run(Cast{.x = whole, .y = sent});
  return sent;
}

void Reducer::reduce_whole(State& state) {
  if (ranks_.size() == 1) return;
  const Interval own = state.partition.owned(ranks_.rank());
  const Tensor sent = to_wire(state.whole), mine = sent.flat(own.begin, own.end);
  Event event = ranks_.reduce_scatter(sent, mine);
  if (!policy_.shard_optimizer) event = ranks_.all_gather(mine, sent);
  if (wire_ == dtype_) {
    state.reduction = event;
  } else if (policy_.shard_optimizer) {
    send({.event = event, .whole = sent, .from = mine, .into = state.whole.flat(own.begin, own.end)});
  } else {
    send({.event = event, .whole = sent, .from = sent, .into = state.whole});
  }
}

void Reducer::reduce_to_shard(size_t unit) {
  State& state = states_[unit];
  const Tensor sent = to_wire(std::exchange(state.whole, {}));
  const bool direct = !state.shard_begun && wire_ == dtype_;
  const Tensor sum = direct ? state.shard : context_.empty({state.partition.shard()}, wire_, Category::gradients);
  const Event event = ranks_.reduce_scatter(sent, sum);
  send({.event = event, .whole = sent, .from = direct ? Tensor{} : sum, .into = state.shard, .add = state.shard_begun});
  state.shard_begun = true;
  std::fill(state.written.begin(), state.written.end(), false);
}

void Reducer::send(Flight flight) {
  flights_.push_back(std::move(flight));
  // Gradients that became a copy for the wire free their own buffer at once: bound the copies here.
  while (wire_ != dtype_ && flights_.size() > kFlights + 1) land_oldest();
}

void Reducer::land_oldest() {
  const Flight flight = std::move(flights_.front());
  flights_.pop_front();
  ranks_.wait(flight.event);
  if (!flight.from) return;
  if (flight.add) {
    context_.run(AddTo{.x = flight.from, .into = flight.into});
  } else {
    context_.run(Cast{.x = flight.from, .y = flight.into});
  }
}

void Reducer::settle() {
  while (!flights_.empty()) land_oldest();
  for (State& state : states_) ranks_.wait(state.reduction);
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
