#include "nought/zero/residency.h"

#include <algorithm>

#include "nought/comm/flight_recorder.h"
#include "nought/zero/placement.h"

namespace nought {

namespace {
/// One bucket may be under way while the next is filled.
constexpr size_t kExchanges = 1;
}  // namespace

Residency::Residency(const Context& context, const Mesh& mesh, Policy policy, DType dtype, int64_t bucket,
                     const std::vector<std::unique_ptr<Unit>>& units)
    : context_(context), mesh_(mesh), dtype_(dtype), trained_(segments_of(units, /*trainable=*/true)) {
  for (const auto& unit : units) {
    State state;
    state.name = unit->name();
    for (const Segment& segment : unit->segments()) {
      Buffers held;
      const Group sharing = sharing_group(segment.cut_along);
      held.ranks = &mesh_.group(sharing);
      held.over_hosts = mesh_.over_hosts(sharing);
      held.policy = policy.for_ranks(held.ranks->size());
      held.partition = Partition(segment, held.ranks->size());
      held.dtype = segment.dtype.value_or(dtype_);
      sharded_ |= held.policy.shard_parameters;
      const int64_t size = held.policy.shard_parameters ? held.partition.shard() : held.partition.padded();
      held.stored = context_.zeros({size}, held.dtype, Category::parameters);
      state.segments.push_back(std::move(held));
    }
    states_.push_back(std::move(state));
  }
  std::vector<SharedSegment> shared;
  for (const SegmentIndex at : trained_) shared.push_back({partition(at), &ranks(at)});
  buckets_ = make_buckets(shared, bucket, BucketOrder::forward);
}

void Residency::prefetch(size_t unit) {
  for (Buffers& held : states_[unit].segments) {
    if (!held.policy.shard_parameters || held.gathered) continue;
    if (held.partition.padded() == 0) {  // other ranks have all of it
      held.gathered = held.stored;
      continue;
    }
    const FlightSubject subject(*held.ranks, states_[unit].name);
    gather(held);
  }
}

void Residency::gather(Buffers& held) const {
  const int64_t shard = held.partition.shard();
  held.gathered = context_.empty({held.partition.padded()}, held.dtype, Category::parameters);
  if (!held.over_hosts) {
    held.arrival = held.ranks->all_gather(held.stored, held.gathered);
    return;
  }
  const auto& [inside, across] = *held.over_hosts;
  held.of_hosts = context_.empty({across->size() * shard}, held.dtype, Category::parameters);
  inside->follow(across->all_gather(held.stored, held.of_hosts));
  const int64_t of_host = inside->size() * shard;
  for (int host = 0; host < across->size(); ++host)
    held.arrival = inside->all_gather(held.of_hosts.flat(host * shard, (host + 1) * shard),
                                      held.gathered.flat(host * of_host, (host + 1) * of_host));
}

void Residency::lease(size_t unit) {
  prefetch(unit);
  ++states_[unit].leases;
  arrive(unit);
}

void Residency::release(size_t unit) {
  State& state = states_[unit];
  require(state.leases > 0, "unit {} is released more often than it was leased", state.name);
  if (--state.leases > 0) return;
  for (Buffers& held : state.segments) held.gathered = {};
}

Tensor Residency::whole(SegmentIndex at) const {
  const State& state = states_[at.unit];
  require(state.leases > 0, "the parameters of unit {} are read without a lease: run it through Tape::run_unit",
          state.name);
  return policy(at).shard_parameters ? buffers(at).gathered : buffers(at).stored;
}

Tensor Residency::owned(SegmentIndex at) const {
  ranks(at).wait(buffers(at).arrival, *context_.stream);
  if (policy(at).shard_parameters) return buffers(at).stored;
  const Interval own = partition(at).owned(ranks(at).rank());
  return buffers(at).stored.flat(own.begin, own.end);
}

Interval Residency::kept(SegmentIndex at) const {
  return policy(at).shard_parameters ? partition(at).owned(ranks(at).rank()) : Interval{0, partition(at).padded()};
}

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
  while (exchanges_.size() > kExchanges) land_oldest();
  const Tensor packed = context_.empty({bucket.numel()}, dtype_, Category::communication);
  for (size_t place = 0; place < bucket.members().size(); ++place)
    context_.copy(owned(trained_[bucket.members()[place]]), bucket.part(packed, ranks.rank(), place));
  exchanges_.push_back({ranks.all_gather(bucket.part(packed, ranks.rank()), packed), &bucket, packed});
}

void Residency::land_oldest() {
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
  // They land in the order in which they began: what is before the Unit's bucket lands too.
  while (std::any_of(exchanges_.begin(), exchanges_.end(), holds)) land_oldest();
  for (Buffers& held : states_[unit].segments) {
    held.ranks->wait(held.arrival, *context_.stream);
    held.of_hosts = {};
  }
}

void Residency::drop_prefetched() {
  for (State& state : states_)
    if (state.leases == 0)
      for (Buffers& held : state.segments) held.gathered = {};
}

void Residency::settle() {
  for (size_t unit = 0; unit < states_.size(); ++unit) arrive(unit);
}

}  // namespace nought
