#include "nought/zero/reducer.h"

#include <algorithm>
#include <utility>

#include "nought/comm/flight_recorder.h"

namespace nought {

namespace {
/// One segment's gradients may be on the wire while the next one's are being written: two whole buffers rotate.
constexpr size_t kFlights = 1;
}  // namespace

Reducer::Reducer(const Context& context, Communicator& ranks, const Options& options,
                 const std::vector<std::unique_ptr<Unit>>& units)
    : context_(context),
      ranks_(ranks),
      tensor_(options.tensor),
      units_(units),
      policy_(options.policy),
      dtype_(options.dtype),
      wire_(options.wire),
      overlap_(options.overlap) {
  std::vector<Partition> partitions;
  for (const SegmentIndex at : segments_of(units, /*trainable=*/true)) {
    const Unit& unit = *units[at.unit];
    const Partition partition(unit.segments()[at.segment].size, ranks_.size());
    State state;
    state.at = at, state.unit = &unit, state.partition = partition;
    state.gaps = gaps_in(unit, at.segment, partition.padded());
    if (policy_.shard_gradients) {
      state.shard = context_.zeros({partition.shard()}, dtype_, Category::gradients);
    } else {
      state.whole = {context_.zeros({partition.padded()}, dtype_, Category::gradients),
                     std::vector<bool>(unit.parameters().size(), false)};
    }
    partitions.push_back(partition);
    states_.push_back(std::move(state));
  }
  buckets_ = make_buckets(partitions, options.bucket, BucketOrder::backward);
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket)
    for (size_t place = 0; place < buckets_[bucket].members().size(); ++place) {
      State& state = states_[buckets_[bucket].members()[place]];
      state.bucket = bucket, state.place = place;
    }
}

size_t Reducer::place_of(SegmentIndex at) const {
  const auto found = std::find_if(states_.begin(), states_.end(), [&](const State& state) { return state.at == at; });
  require(found != states_.end(), "segment {} of unit {} is not trained: it has no gradient", at.segment,
          units_[at.unit]->name());
  return static_cast<size_t>(found - states_.begin());
}

Reducer::MicroBatch Reducer::begin_micro_batch(bool last) const {
  MicroBatch begun;
  begun.last_ = last;
  if (!policy_.shard_gradients) return begun;
  for (const State& state : states_)
    begun.wholes_.push_back({{}, std::vector<bool>(state.unit->parameters().size(), false)});
  return begun;
}

Reducer::Whole& Reducer::whole_of(MicroBatch& of, size_t place) {
  return policy_.shard_gradients ? of.wholes_[place] : states_[place].whole;
}

GradSink Reducer::sink(MicroBatch& of, size_t unit, size_t first, size_t last) {
  const size_t place = place_of({unit, units_[unit]->parameters()[first].segment});
  const State& state = states_[place];
  Whole& whole = whole_of(of, place);
  const std::vector<Parameter>& parameters = state.unit->parameters();
  if (!whole.values) {
    while (flights_.size() > kFlights) land_oldest();
    whole.values = context_.empty({state.partition.padded()}, dtype_, Category::gradients);
  }
  const bool accumulate = whole.written[first];
  for (size_t i = first; i <= last; ++i) {
    require(whole.written[i] == accumulate,
            "unit {}: parameters {} to {} are written as one, but some alone before: use the same view everywhere",
            state.unit->name(), first, last);
    whole.written[i] = true;
  }
  return {whole.values.flat(parameters[first].range.begin, parameters[last].range.end), accumulate};
}

void Reducer::clear_unwritten(const State& state, Whole& whole) {
  if (!whole.values) whole.values = context_.empty({state.partition.padded()}, dtype_, Category::gradients);
  const auto clear = [&](Interval range) { context_.zero(whole.values.flat(range.begin, range.end)); };
  for (const size_t i : state.unit->segments()[state.at.segment].parameters)
    if (!whole.written[i]) clear(state.unit->parameters()[i].range);
  for (const Interval gap : state.gaps) clear(gap);
}

void Reducer::add_parts(const State& state, const Whole& whole) {
  const Axes partial = state.unit->segments()[state.at.segment].partial_along;
  if (tensor_ == nullptr || tensor_->size() == 1 || !partial.has(Axis::tensor)) return;
  const FlightSubject subject(*tensor_, state.unit->name());
  tensor_->wait(tensor_->all_reduce(whole.values), *context_.stream);
}

void Reducer::finish(MicroBatch& of, size_t unit) {
  if (!policy_.shard_gradients && !of.last_) return;
  for (size_t place = 0; place < states_.size(); ++place)
    if (states_[place].at.unit == unit) finish(states_[place], whole_of(of, place));
}

void Reducer::finish(State& state, Whole& whole) {
  clear_unwritten(state, whole);
  add_parts(state, whole);
  if (!buckets_[state.bucket].alone()) {
    pack(state, whole);
  } else if (policy_.shard_gradients) {
    reduce_to_shard(state, whole);
  } else {
    reduce_whole(state);
  }
  if (policy_.shard_gradients) std::fill(whole.written.begin(), whole.written.end(), false);
  state.finished = true;
  if (!overlap_) land_all();
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
  const FlightSubject subject(ranks_, state.unit->name());
  const Tensor sent = to_wire(state.whole.values), mine = sent.flat(own.begin, own.end);
  Event event = ranks_.reduce_scatter(sent, mine);
  if (!policy_.shard_optimizer) event = ranks_.all_gather(mine, sent);
  if (wire_ == dtype_) {
    state.reduction = event;
  } else if (policy_.shard_optimizer) {
    send({.event = event, .sent = sent, .landings = {{mine, state.whole.values.flat(own.begin, own.end)}}});
  } else {
    send({.event = event, .sent = sent, .landings = {{sent, state.whole.values}}});
  }
}

void Reducer::reduce_to_shard(State& state, Whole& whole) {
  const Tensor sent = to_wire(std::exchange(whole.values, {}));
  const bool direct = !state.shard_begun && wire_ == dtype_;
  const Tensor sum = direct ? state.shard : context_.empty({state.partition.shard()}, wire_, Category::gradients);
  const FlightSubject subject(ranks_, state.unit->name());
  Flight flight{.event = ranks_.reduce_scatter(sent, sum), .sent = sent, .landings = {}};
  if (!direct) flight.landings.push_back({sum, state.shard, state.shard_begun});
  send(std::move(flight));
  state.shard_begun = true;
}

/// The first segment of a bucket makes room for all; the last one sends it.
void Reducer::pack(State& state, Whole& whole) {
  if (filling_ && (filling_->bucket != state.bucket || filling_->present[state.place])) send_bucket();
  const Bucket& bucket = buckets_[state.bucket];
  if (!filling_) {
    while (flights_.size() > kFlights) land_oldest();
    filling_ = {.bucket = state.bucket,
                .packed = context_.empty({bucket.numel()}, wire_, Category::communication),
                .present = std::vector<bool>(bucket.members().size(), false)};
  }
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    const Interval owned = state.partition.owned(rank);
    copy_as(context_, whole.values.flat(owned.begin, owned.end), bucket.part(filling_->packed, rank, state.place));
  }
  if (policy_.shard_gradients) whole.values = {};
  std::vector<bool>& present = filling_->present;
  present[state.place] = true;
  if (std::find(present.begin(), present.end(), false) == present.end()) send_bucket();
}

void Reducer::send_bucket() {
  const Filling filling = *std::exchange(filling_, std::nullopt);
  const Bucket& bucket = buckets_[filling.bucket];
  const Tensor& packed = filling.packed;
  Flight flight{.event = {}, .sent = packed, .landings = {}};
  for (size_t place = 0; place < bucket.members().size(); ++place) {
    State& state = states_[bucket.members()[place]];
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      const Tensor part = bucket.part(packed, rank, place);
      if (!filling.present[place]) {
        context_.zero(part);  // a segment that this pass left out
      } else if (policy_.shard_gradients && rank == ranks_.rank()) {
        flight.landings.push_back({part, state.shard, std::exchange(state.shard_begun, true)});
      } else if (!policy_.shard_optimizer || rank == ranks_.rank()) {
        const Interval owned = state.partition.owned(rank);
        flight.landings.push_back({part, state.whole.values.flat(owned.begin, owned.end)});
      }
    }
  }
  const Tensor own = bucket.part(packed, ranks_.rank());
  const FlightSubject subject(ranks_, states_[bucket.members().front()].unit->name());
  flight.event = ranks_.reduce_scatter(packed, own);
  if (!policy_.shard_optimizer) flight.event = ranks_.all_gather(own, packed);
  send(std::move(flight));
}

void Reducer::send(Flight flight) {
  flights_.push_back(std::move(flight));
  // Gradients that became a copy for the wire free their own buffer at once: bound the copies here.
  while (wire_ != dtype_ && flights_.size() > kFlights + 1) land_oldest();
}

void Reducer::land_oldest() {
  const Flight flight = std::move(flights_.front());
  flights_.pop_front();
  ranks_.wait(flight.event, *context_.stream);
  for (const auto& [from, into, add] : flight.landings) {
    if (add) {
      context_.run(AddTo{.x = from, .into = into});
    } else {
      copy_as(context_, from, into);
    }
  }
}

void Reducer::land_all() {
  while (!flights_.empty()) land_oldest();
  for (State& state : states_) ranks_.wait(state.reduction, *context_.stream);
}

void Reducer::finish_step() {
  // Without gradient sharding earlier micro-batches may have written what only the last one reduces.
  if (!policy_.shard_gradients)
    for (size_t i = states_.size(); i-- > 0;)
      if (!states_[i].finished) finish(states_[i], states_[i].whole);
  settle();
  if (policy_.shard_gradients)
    for (const State& state : states_)
      if (!state.shard_begun) context_.zero(state.shard);
}

void Reducer::settle() {
  if (filling_) send_bucket();
  land_all();
}

Tensor Reducer::owned(SegmentIndex at) const {
  const State& state = states_[place_of(at)];
  if (policy_.shard_gradients) return state.shard;
  const Interval own = state.partition.owned(ranks_.rank());
  return state.whole.values.flat(own.begin, own.end);
}

Tensor Reducer::reduced(SegmentIndex at) const {
  return policy_.shard_optimizer ? owned(at) : states_[place_of(at)].whole.values;
}

void Reducer::reset() {
  for (State& state : states_) {
    std::fill(state.whole.written.begin(), state.whole.written.end(), false);
    state.shard_begun = state.finished = false;
    state.reduction = {};
  }
}

}  // namespace nought
