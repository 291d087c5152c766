#include "nought/zero/residency.h"

#include <algorithm>
#include <limits>

#include "nought/comm/flight_recorder.h"
#include "nought/zero/placement.h"

namespace nought {

namespace {
/// One bucket may be under way while the next is filled.
constexpr size_t kExchanges = 1;

/// On a device that is the host, what lives there is a view: it stays.
ParameterOffload offload_on(const Memory& memory, ParameterOffload offload) {
  if (offload.tier.pool == Pool::host && memory.device().is_host()) offload.tier.pool = Pool::device;
  if (offload.tier.pool == Pool::host)  // one Unit is fetched while the one before it is gathered
    offload.buffers = 2, offload.buffer_size = std::numeric_limits<int64_t>::max();
  return offload;
}

}  // namespace

Residency::Residency(const Context& context, const Mesh& mesh, Policy policy, DType dtype, int64_t bucket,
                     const std::vector<std::unique_ptr<Unit>>& units, const ParameterOffload& offload, int weight_bits,
                     int virtual_ranks)
    : context_(context),
      mesh_(mesh),
      dtype_(dtype),
      weight_bits_(weight_bits),
      offload_(offload_on(*context.memory, offload)),
      trained_(segments_of(units, /*trainable=*/true)) {
  if (offload_.tier.pool != Pool::device)
    store_ = std::make_unique<ParameterStore>(context_, offload_, fmt::format("rank {}", mesh_.world().rank()));
  for (const auto& unit : units) {
    State state;
    state.name = unit->name();
    for (const Segment& segment : unit->segments()) {
      Buffers held;
      const Group sharing = sharing_group(segment.cut_along);
      held.ranks = &mesh_.group(sharing);
      held.wire = {held.ranks, mesh_.over_hosts(sharing)};
      held.policy = policy.for_ranks(held.ranks->size());
      held.partition = Partition(segment, held.ranks->size(), segment.trainable ? virtual_ranks : 0);
      held.dtype = segment.dtype.value_or(dtype_);
      sharded_ |= held.policy.shard_parameters;
      require<ConfigError>(!store_ || held.policy.shard_parameters || held.ranks->size() == 1,
                           "parameters are kept in the {} pool at ZeRO stage 3 alone: below it every rank needs all",
                           name_of(offload_.tier.pool));
      const int64_t numel = kept_elements(held);
      if (store_ && numel > 0) {
        const Interval kept = kept_of(held);
        std::vector<Interval> gaps;
        for (const Interval& gap : gaps_in(*unit, state.segments.size(), held.partition.padded()))
          if (const Interval mine = intersect(gap, kept); !mine.empty())
            gaps.push_back({mine.begin - kept.begin, mine.end - kept.begin});
        held.slot = store_->add(numel, held.dtype, std::move(gaps));
      }
      make_secondary(segment, held);
      if (!held.slot) held.stored = context_.zeros({numel}, held.dtype, Category::parameters);
      state.segments.push_back(std::move(held));
    }
    states_.push_back(std::move(state));
  }
  if (store_) store_->open();
  std::vector<SharedSegment> shared;
  for (const SegmentIndex at : trained_) shared.push_back({partition(at), &ranks(at)});
  buckets_ = make_buckets(shared, bucket, BucketOrder::forward);
}

void Residency::make_secondary(const Segment& segment, Buffers& held) const {
  if (!held.policy.shard_parameters) return;
  held.codes = weight_bits_ > 0 && segment.content == SegmentContent::values;
  const Communicator& keepers = mesh_.secondary();
  if (keepers.size() == 1 || held.ranks != &mesh_.group(Group::parameters)) return;
  require<ConfigError>(!store_,
                       "a secondary partition of {} ranks keeps parameters on the device, which are to be kept in the "
                       "{} pool: choose one of the two",
                       keepers.size(), name_of(offload_.tier.pool));
  held.secondary = context_.zeros({held.partition.padded() / keepers.size()}, held.dtype, Category::parameters);
}

int64_t Residency::buffers_of(const State& state) const {
  int64_t elements = 0;
  for (const Buffers& held : state.segments)
    if (held.slot) elements += kept_elements(held);
  return ceil_div(elements, offload_.buffer_size);
}

bool Residency::fetch_ahead(size_t unit) {
  if (!store_) return false;
  const auto begun = [](const State& state) {
    return std::any_of(state.segments.begin(), state.segments.end(),
                       [](const Buffers& held) { return held.slot && (held.fetched || held.gathered); });
  };
  if (begun(states_[unit])) return true;
  int64_t filled = buffers_of(states_[unit]);
  for (const State& state : states_)
    if (state.leases == 0 && !state.stays && begun(state)) filled += buffers_of(state);
  if (filled > offload_.buffers) return false;
  fetch(unit);
  return true;
}

void Residency::fetch(size_t unit) {
  for (Buffers& held : states_[unit].segments) {
    if (!held.slot || held.fetched || held.gathered) continue;
    Tensor& into = held.policy.shard_parameters ? held.fetched : held.gathered;
    into = store_->device_room(kept_elements(held), held.dtype, Category::parameters);
    held.fetch = store_->bring(*held.slot, {0, into.numel()}, into);
  }
}

void Residency::prefetch(size_t unit) {
  fetch(unit);
  for (Buffers& held : states_[unit].segments) {
    if (!held.policy.shard_parameters || held.gathered) continue;
    if (held.partition.padded() == 0) {  // other ranks have all of it
      held.gathered = held.stored;
      continue;
    }
    const FlightSubject subject(*held.ranks, states_[unit].name);
    gather(held, states_[unit].exact);
  }
}

void Residency::gather(Buffers& held, bool exact) const {
  held.gathered = context_.empty({held.partition.padded()}, held.dtype, Category::parameters);
  const bool codes = held.codes && !exact;
  if (held.kept_whole && (codes || !held.codes)) {
    held.gather = ShardGather(context_, {&mesh_.secondary()}, held.secondary, held.gathered, 0);
  } else {
    held.gather = ShardGather(context_, held.wire, held.slot ? held.fetched : held.stored, held.gathered,
                              codes ? weight_bits_ : 0, held.fetch);
  }
}

void Residency::lease(size_t unit) {
  prefetch(unit);
  ++states_[unit].leases;
  states_[unit].stays = false;
  arrive(unit);
}

void Residency::lease_exact(size_t unit) {
  State& state = states_[unit];
  if (weight_bits_ > 0 && !state.exact) {
    require(state.leases == 0, "the stored values of unit {} are asked for while a pass computes with it", state.name);
    arrive(unit);
    for (Buffers& held : state.segments)
      if (held.codes) held.gathered = {};  // a prefetch has brought codes
    state.exact = true;
  }
  lease(unit);
}

void Residency::release(size_t unit, bool stays) {
  State& state = states_[unit];
  require(state.leases > 0, "unit {} is released more often than it was leased", state.name);
  if (--state.leases > 0) return;
  for (Buffers& held : state.segments) {
    if (held.secondary && held.secondary.numel() > 0 && !held.kept_whole && !(held.codes && state.exact)) {
      const int64_t share = held.secondary.numel(), begin = mesh_.secondary().rank() * share;
      context_.copy(held.gathered.flat(begin, begin + share), held.secondary);
      held.kept_whole = true;
    }
  }
  state.stays = stays && !state.exact;
  if (!state.stays) drop(state);
  state.exact = false;
}

void Residency::drop(State& state) {
  for (Buffers& held : state.segments) held.gathered = held.fetched = {};
  state.stays = false;
}

void Residency::drop_live() {
  for (State& state : states_)
    if (state.stays) drop(state);
}

int64_t Residency::brought(size_t unit) const {
  int64_t elements = 0;
  for (const Buffers& held : states_[unit].segments)
    if (comes(held)) elements += held.partition.padded();
  return elements;
}

Tensor Residency::whole(SegmentIndex at) const {
  const State& state = states_[at.unit];
  require(state.leases > 0, "the parameters of unit {} are read without a lease: run it through Tape::run_unit",
          state.name);
  return comes(buffers(at)) ? buffers(at).gathered : buffers(at).stored;
}

Tensor Residency::read(SegmentIndex at, Interval elements) const {
  const Buffers& held = buffers(at);
  const int64_t first = kept(at).begin;
  const Interval in_kept{elements.begin - first, elements.end - first};
  if (!held.slot) {
    held.ranks->wait(held.arrival, *context_.stream);
    return held.stored.flat(in_kept.begin, in_kept.end);
  }
  const Tensor values = store_->device_room(elements.size(), held.dtype, Category::workspace);
  store_->await(store_->bring(*held.slot, in_kept, values));
  return values;
}

void Residency::begin_update(SegmentIndex at, Pool where, bool reads) {
  buffers(at).kept_whole = false;
  if (const Buffers& held = buffers(at); held.slot) store_->begin_update(*held.slot, where, reads);
}

Tensor Residency::updating(SegmentIndex at) const {
  const Buffers& held = buffers(at);
  if (held.slot) return store_->updating(*held.slot);
  held.ranks->wait(held.arrival, *context_.stream);
  return held.stored;
}

void Residency::end_update(SegmentIndex at) {
  if (const Buffers& held = buffers(at); held.slot) store_->end_update(*held.slot);
}

Interval Residency::kept(SegmentIndex at) const { return kept_of(buffers(at)); }

void Residency::exchange_updates() {
  for (const Bucket& bucket : buckets_) {
    const Policy updated = policy(trained_[bucket.members().front()]);
    if (updated.shard_optimizer && !updated.shard_parameters) exchange(bucket);  // else shards, or all that was updated
  }
}

void Residency::exchange(const Bucket& bucket) {
  Communicator& ranks = bucket.group();
  const FlightSubject subject(ranks, states_[trained_[bucket.members().front()].unit].name);
  if (bucket.alone()) {
    const SegmentIndex at = trained_[bucket.members().front()];
    buffers(at).arrival = ranks.all_gather(owned(at), buffers(at).stored);
    return;
  }
  while (exchanges_.size() > kExchanges) complete_oldest();
  const Tensor packed = context_.empty({bucket.numel()}, dtype_, Category::communication);
  for (size_t place = 0; place < bucket.members().size(); ++place)
    context_.copy(owned(trained_[bucket.members()[place]]), bucket.part(packed, ranks.rank(), place));
  exchanges_.push_back({ranks.all_gather(bucket.part(packed, ranks.rank()), packed), &bucket, packed});
}

void Residency::complete_oldest() {
  const Exchange exchange = std::move(exchanges_.front());
  exchanges_.pop_front();
  const Communicator& ranks = exchange.bucket->group();
  ranks.wait(exchange.event, *context_.stream);
  for (size_t place = 0; place < exchange.bucket->members().size(); ++place) {
    const Buffers& into = buffers(trained_[exchange.bucket->members()[place]]);
    for (int rank = 0; rank < ranks.size(); ++rank) {
      const Interval owned = into.partition.owned(rank);
      if (rank != ranks.rank())
        context_.copy(exchange.bucket->part(exchange.packed, rank, place), into.stored.flat(owned.begin, owned.end));
    }
  }
}

void Residency::arrive(size_t unit) {
  const auto holds = [&](const Exchange& exchange) {
    const std::vector<size_t>& members = exchange.bucket->members();
    return std::any_of(members.begin(), members.end(), [&](size_t member) { return trained_[member].unit == unit; });
  };
  // They complete in the order in which they began: what is before the Unit's bucket completes too.
  while (std::any_of(exchanges_.begin(), exchanges_.end(), holds)) complete_oldest();
  for (Buffers& held : states_[unit].segments) {
    if (held.slot) {
      const TimedScope scope(held.fetch.ready() ? nullptr : held.ranks->timeline(), TraceEventKind::wait, "wait");
      store_->await(held.fetch);
      store_->complete(*held.slot);
    }
    held.ranks->wait(held.arrival, *context_.stream);
    held.gather.finish(context_, held.gathered);
    held.fetched = {};
    held.fetch = {};
  }
}

void Residency::drop_prefetched() {
  for (State& state : states_)
    if (state.leases == 0) drop(state);
}

void Residency::settle() {
  for (size_t unit = 0; unit < states_.size(); ++unit) arrive(unit);
}

}  // namespace nought
