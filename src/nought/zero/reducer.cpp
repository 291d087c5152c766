#include "nought/zero/reducer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "nought/comm/flight_recorder.h"
#include "nought/zero/placement.h"

namespace nought {

namespace {
/// One segment's gradients may be on the wire while the next one's are being written: two whole buffers rotate.
constexpr size_t kFlights = 1;
}  // namespace

Reducer::Reducer(const Context& context, const Mesh& mesh, const Options& options,
                 const std::vector<std::unique_ptr<Unit>>& units)
    : context_(context),
      mesh_(mesh),
      units_(units),
      dtype_(options.dtype),
      wire_(options.codes.gradient_bits > 0 ? options.dtype : options.wire),
      codes_(options.codes),
      overlap_(options.overlap) {
  const OffloadTier& tier = options.tier;
  const bool stay = tier.pool == Pool::device || (tier.pool == Pool::host && context_.memory->device().is_host());
  if (!stay && !has_replicas())
    store_ = std::make_unique<GradientStore>(context_, dtype_, tier, fmt::format("rank {}", mesh_.world().rank()));
  std::vector<SharedSegment> shared;
  for (const SegmentIndex at : segments_of(units, /*trainable=*/true)) {
    const Unit& unit = *units[at.unit];
    const Segment& segment = unit.segments()[at.segment];
    Communicator& ranks = mesh_.group(sharing_group(segment.cut_along));
    const Partition partition(segment.size, ranks.size());
    State state;
    state.at = at, state.unit = &unit, state.ranks = &ranks, state.partition = partition;
    state.policy = options.policy.for_ranks(ranks.size());
    state.gaps = gaps_in(unit, at.segment, partition.padded());
    shards_ |= state.policy.shard_gradients;
    const bool is_alone = store_ && store_->in_file() && ranks.size() == 1;
    if (store_ && !unit.has_copy() && !unit.is_copy() && (state.policy.shard_gradients || is_alone))
      state.stored = store_->add(partition.shard(), counted_for_all(segment, partition, mesh_));
    if (in_file(state)) {
      state.whole.written.assign(unit.parameters().size(), false);
    } else if (state.policy.shard_gradients) {
      state.shard =
          state.stored ? store_->held(*state.stored) : context_.zeros({partition.shard()}, dtype_, Category::gradients);
    } else {
      state.whole = {context_.zeros({partition.padded()}, dtype_, Category::gradients),
                     std::vector<bool>(unit.parameters().size(), false)};
    }
    shared.push_back({partition, &ranks, unit.tile_of() != nullptr});
    states_.push_back(std::move(state));
  }
  if (store_) store_->open();
  buckets_ = make_buckets(shared, options.bucket, BucketOrder::backward);
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket)
    for (size_t place = 0; place < buckets_[bucket].members().size(); ++place) {
      State& state = states_[buckets_[bucket].members()[place]];
      state.bucket = bucket, state.place = place;
    }
  make_errors();
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
  if (store_) begun.begun_.assign(states_.size(), false);
  if (!shards_) return begun;
  for (const State& state : states_)
    begun.wholes_.push_back({{}, std::vector<bool>(state.unit->parameters().size(), false)});
  return begun;
}

void Reducer::keep_local(bool keeps) {
  require(!keeps || !shards_, "a rank keeps no whole gradients of its own where they are sharded");
  keeps_local_ = keeps;
}

Reducer::Whole& Reducer::whole_of(MicroBatch& of, size_t place) {
  return states_[place].policy.shard_gradients ? of.wholes_[place] : states_[place].whole;
}

void Reducer::make_whole(State& state, Whole& whole) {
  if (whole.values) return;
  while (flights_.size() > kFlights) complete_oldest();
  whole.values =
      swaps_whole(state) ? take_up(state) : context_.empty({state.partition.padded()}, dtype_, Category::gradients);
  for (const auto& [range, values] : std::exchange(whole.early, {}))
    context_.copy(values, whole.values.flat(range.begin, range.end));
}

void Reducer::await_readers() { context_.stream->wait(std::exchange(read_, {})); }

GradSink Reducer::sink(MicroBatch& of, size_t unit, size_t first, size_t last, bool early) {
  await_readers();
  const size_t place = place_of({unit, units_[unit]->parameters()[first].segment});
  State& state = states_[place];
  Whole& whole = whole_of(of, place);
  if (swaps_whole(state) && !of.begun_[place]) of.begun_[place] = true, ++state.open;
  const std::vector<Parameter>& parameters = state.unit->parameters();
  const bool accumulate = whole.written[first];
  for (size_t i = first; i <= last; ++i) {
    require(whole.written[i] == accumulate,
            "unit {}: parameters {} to {} are written as one, but some alone before: use the same view everywhere",
            state.unit->name(), first, last);
    whole.written[i] = true;
  }
  const Interval range{parameters[first].range.begin, parameters[last].range.end};
  if (early && !whole.values) return {early_part(state, whole, range, accumulate), accumulate};
  make_whole(state, whole);
  return {whole.values.flat(range.begin, range.end), accumulate};
}

void Reducer::clear_unwritten(State& state, Whole& whole) {
  make_whole(state, whole);
  const auto clear = [&](Interval range) { context_.zero(whole.values.flat(range.begin, range.end)); };
  for (const size_t i : state.unit->segments()[state.at.segment].parameters)
    if (!whole.written[i]) clear(state.unit->parameters()[i].range);
  for (const Interval gap : state.gaps) clear(gap);
}

void Reducer::add_parts(const State& state, const Whole& whole) {
  const Axes partial = state.unit->segments()[state.at.segment].partial_along;
  for (const Axis axis : {Axis::tensor, Axis::expert_tensor}) {
    Communicator& ranks = ranks_along(axis, mesh_);
    if (ranks.size() == 1 || !partial.has(axis)) continue;
    const FlightSubject subject(ranks, state.unit->name());
    ranks.wait(ranks.all_reduce(whole.values), *context_.stream);
  }
}

void Reducer::finish(MicroBatch& of, size_t unit) {
  await_readers();
  for (size_t place = 0; place < states_.size(); ++place) {
    State& state = states_[place];
    if (state.at.unit != unit) continue;
    if (swaps_whole(state)) {
      finish_swapped(of, place);
    } else if (state.policy.shard_gradients || of.last_) {
      finish(state, whole_of(of, place), of.last_);
    }
  }
}

void Reducer::reduce_so_far(MicroBatch& of, size_t unit) {
  for (size_t place = 0; place < states_.size(); ++place) {
    State& state = states_[place];
    if (state.at.unit != unit) continue;
    if (state.policy.shard_gradients) finish(state, of.wholes_[place], /*last=*/false);
    if (swaps_whole(state) && state.whole.values && state.open == 1) put_back(state, /*last=*/false);
  }
}

void Reducer::finish(State& state, Whole& whole, bool last) {
  clear_unwritten(state, whole);
  add_parts(state, whole);
  if (keeps_local_) {
    state.finished = state.completed = true;
    return;
  }
  if (!buckets_[state.bucket].alone()) {
    pack(state, whole, last);
  } else if (state.policy.shard_gradients) {
    reduce_to_shard(state, whole, last);
  } else {
    reduce_whole(state);
  }
  if (state.policy.shard_gradients) std::fill(whole.written.begin(), whole.written.end(), false);
  state.finished = true;
  if (!overlap_) complete_all();
}

Tensor Reducer::to_wire(const Tensor& whole) const {
  if (wire_ == dtype_) return whole;
  const Tensor sent = context_.empty(whole.shape(), wire_, Category::communication);
  context_.run(Cast{.x = whole, .y = sent});
  return sent;
}

void Reducer::reduce_whole(State& state) {
  Communicator& ranks = *state.ranks;
  state.completed = ranks.size() == 1 && !has_replicas();
  if (state.completed) return;
  const Interval own = state.partition.owned(ranks.rank());
  const FlightSubject subject(mesh_.world(), state.unit->name());
  const Tensor sent = to_wire(state.whole.values), mine = sent.flat(own.begin, own.end);
  Event event = over_replicas(ranks.size() > 1 ? ranks.reduce_scatter(sent, mine) : Event(), mine);
  if (!state.policy.shard_optimizer && ranks.size() > 1) {
    if (has_replicas()) ranks.follow(event);
    event = ranks.all_gather(mine, sent);
  }
  if (wire_ == dtype_) {
    state.reduction = event, state.in_place = true;
    return;
  }
  Destination destination{sent, state.whole.values};
  if (state.policy.shard_optimizer) destination = {mine, state.whole.values.flat(own.begin, own.end)};
  send({.ranks = &ranks, .event = event, .sent = sent, .destinations = {destination}, .final = {place_of(state.at)}});
}

void Reducer::reduce_to_shard(State& state, Whole& whole, bool last) {
  const Tensor sent = to_wire(std::exchange(whole.values, {}));
  const bool direct = !state.shard_begun && wire_ == dtype_ && !state.stored;
  const int64_t numel = state.partition.shard();
  const Tensor sum = direct         ? state.shard
                     : state.stored ? store_->device_room(numel, wire_, Category::gradients)
                                    : context_.empty({numel}, wire_, Category::gradients);
  const FlightSubject subject(*state.ranks, state.unit->name());
  Flight flight{.ranks = state.ranks, .event = {}, .sent = sent, .destinations = {}};
  begin_reduction(flight, state, sum);
  if (!direct) flight.destinations.push_back({sum, state.shard, state.shard_begun, state.stored, last});
  if (last) flight.last = {place_of(state.at)};
  if (!has_replicas()) flight.final = flight.last;
  send(std::move(flight));
  state.shard_begun = true;
}

/// The first segment of a bucket makes room for all; the last one sends it.
void Reducer::pack(State& state, Whole& whole, bool last) {
  const auto found = filling_.find(state.ranks);
  if (found != filling_.end() && (found->second.bucket != state.bucket || found->second.present[state.place]))
    send_filling(*state.ranks);
  const Bucket& bucket = buckets_[state.bucket];
  if (!filling_.contains(state.ranks)) {
    while (flights_.size() > kFlights) complete_oldest();
    filling_[state.ranks] = {.bucket = state.bucket,
                             .packed = context_.empty({bucket.numel()}, wire_, Category::communication),
                             .present = std::vector<bool>(bucket.members().size(), false)};
  }
  Filling& filling = filling_[state.ranks];
  for (int rank = 0; rank < state.ranks->size(); ++rank) {
    const Interval owned = state.partition.owned(rank);
    copy_as(context_, whole.values.flat(owned.begin, owned.end), bucket.part(filling.packed, rank, state.place));
  }
  if (state.policy.shard_gradients) whole.values = {};
  filling.present[state.place] = true;
  if (last && state.policy.shard_gradients) filling.last.push_back(bucket.members()[state.place]);
  if (std::find(filling.present.begin(), filling.present.end(), false) == filling.present.end())
    send_filling(*state.ranks);
}

void Reducer::send_filling(const Communicator& ranks) {
  const auto found = filling_.find(&ranks);
  if (found == filling_.end()) return;
  Filling filling = std::move(found->second);
  filling_.erase(found);
  send_bucket(std::move(filling));
}

void Reducer::send_bucket(Filling filling) {
  const Bucket& bucket = buckets_[filling.bucket];
  Communicator& ranks = bucket.group();
  const Tensor& packed = filling.packed;
  Flight flight{.ranks = &ranks, .event = {}, .sent = packed, .destinations = {}, .last = filling.last};
  if (!has_replicas()) flight.final = filling.last;
  for (size_t place = 0; place < bucket.members().size(); ++place) {
    State& state = states_[bucket.members()[place]];
    if (filling.present[place] && !state.policy.shard_gradients) flight.final.push_back(bucket.members()[place]);
    for (int rank = 0; rank < ranks.size(); ++rank) {
      const Tensor part = bucket.part(packed, rank, place);
      if (!filling.present[place]) {
        context_.zero(part);  // a segment that this pass left out
      } else if (state.policy.shard_gradients && rank == ranks.rank()) {
        const std::vector<size_t>& last = filling.last;
        const bool is_last = std::find(last.begin(), last.end(), bucket.members()[place]) != last.end();
        flight.destinations.push_back(
            {part, state.shard, std::exchange(state.shard_begun, true), state.stored, is_last});
      } else if (!state.policy.shard_optimizer || rank == ranks.rank()) {
        const Interval owned = state.partition.owned(rank);
        flight.destinations.push_back({part, state.whole.values.flat(owned.begin, owned.end)});
      }
    }
  }
  const State& first = states_[bucket.members().front()];
  const Tensor own = bucket.part(packed, ranks.rank());
  const FlightSubject subject(ranks, first.unit->name());
  begin_reduction(flight, first, own);
  if (!first.policy.shard_gradients) flight.event = over_replicas(flight.event, own);
  if (!first.policy.shard_optimizer) {
    if (has_replicas()) ranks.follow(flight.event);
    flight.event = ranks.all_gather(own, packed);
  }
  send(std::move(flight));
}

void Reducer::send(Flight flight) {
  for (Flight& earlier : flights_)
    if (earlier.quantized) earlier.quantized->cross();  // its second hop runs overlapped with the next Unit's passes
  flights_.push_back(std::move(flight));
  // Gradients that became a copy for the wire free their own buffer at once: bound the copies here.
  while (wire_ != dtype_ && flights_.size() > kFlights + 1) complete_oldest();
}

bool Reducer::is_final(SegmentIndex at) {
  State& state = states_[place_of(at)];
  if (!state.finished) return false;
  if (!state.completed && state.in_place && state.reduction.ready()) {
    state.ranks->wait(state.reduction, *context_.stream);
    state.completed = true;
  }
  return state.completed && state.arrival.ready();
}

void Reducer::complete(const Flight& flight) {
  if (flight.quantized) flight.quantized->complete();
  flight.ranks->wait(flight.event, *context_.stream);
  Event arrival;
  for (const auto& [from, into, add, stored, last] : flight.destinations) {
    if (stored) {
      arrival = store_->take(*stored, from, add, last);
    } else if (add) {
      context_.run(AddTo{.x = from, .into = into});
    } else {
      copy_as(context_, from, into);
    }
  }
  for (const size_t place : flight.final) states_[place].completed = true, states_[place].arrival = arrival;
}

void Reducer::complete_oldest() {
  const Flight flight = std::move(flights_.front());
  flights_.pop_front();
  complete(flight);
  cross(flight.last);
  while (crossings_.size() > kFlights) complete_oldest_crossing();
}

void Reducer::complete_all() {
  for (Flight& flight : flights_)
    if (flight.quantized) flight.quantized->cross();
  while (!flights_.empty()) complete_oldest();
  while (!crossings_.empty()) complete_oldest_crossing();
  for (State& state : states_) state.ranks->wait(state.reduction, *context_.stream);
  if (store_) store_->settle();
}

void Reducer::finish_step() {
  await_readers();
  // Without gradient sharding earlier micro-batches may have written what only the last one reduces.
  for (size_t i = states_.size(); i-- > 0;)
    if (swaps_whole(states_[i]) && !states_[i].finished) {
      put_back(states_[i], /*last=*/true);
    } else if (!states_[i].policy.shard_gradients && !states_[i].finished) {
      finish(states_[i], states_[i].whole, /*last=*/true);
    }
  settle();
  for (size_t i = states_.size(); i-- > 0;) {
    const State& state = states_[i];
    if (!state.policy.shard_gradients) continue;
    if (!state.shard_begun && in_file(state)) {
      store_->take(*state.stored, context_.zeros({state.partition.shard()}, dtype_, Category::gradients),
                   /*add=*/false, /*last=*/true);
    } else if (!state.shard_begun && state.stored) {
      std::memset(state.shard.raw(), 0, static_cast<size_t>(state.shard.bytes()));
    } else if (!state.shard_begun) {
      context_.zero(state.shard);
    }
    if (!state.crossed) cross({i});
  }
  complete_all();
}

void Reducer::settle() {
  for (const Bucket& bucket : buckets_) send_filling(bucket.group());
  complete_all();
}

Tensor Reducer::owned(SegmentIndex at) const {
  const State& state = states_[place_of(at)];
  if (in_file(state)) return store_->values(*state.stored);
  if (state.policy.shard_gradients) return state.shard;
  const Interval own = state.partition.owned(state.ranks->rank());
  return state.whole.values.flat(own.begin, own.end);
}

Tensor Reducer::own(SegmentIndex at) {
  State& state = states_[place_of(at)];
  require(keeps_local_, "gradients of unit {} are those of all ranks", state.unit->name());
  if (!state.finished) finish(state, state.whole, /*last=*/true);
  return state.whole.values;
}

Tensor Reducer::reduced(SegmentIndex at) const {
  const State& state = states_[place_of(at)];
  return state.policy.shard_optimizer || in_file(state) ? owned(at) : state.whole.values;
}

void Reducer::reset() {
  for (State& state : states_) {
    std::fill(state.whole.written.begin(), state.whole.written.end(), false);
    state.shard_begun = state.finished = state.completed = state.in_place = state.crossed = false;
    state.reduction = state.arrival = {};
    if (!state.stored) continue;
    // What a step that was given up has left.
    state.whole.values = {};
    state.whole.early = {};
    state.coming.reset();
    state.open = 0;
  }
  if (store_) store_->reset();
}

}  // namespace nought
