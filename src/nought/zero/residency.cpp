#include "nought/zero/residency.h"

#include <algorithm>

namespace nought {

namespace {
/// One bucket may be under way while the next is filled.
constexpr size_t kExchanges = 1;
}  // namespace

Residency::Residency(const Context& context, Communicator& ranks, Policy policy, DType dtype, int64_t bucket,
                     const std::vector<std::unique_ptr<Unit>>& units)
    : context_(context), ranks_(ranks), policy_(policy), dtype_(dtype) {
  std::vector<Partition> partitions;
  for (const auto& unit : units) {
    State state;
    state.partition = Partition(unit->numel(), ranks_.size());
    state.name = unit->name();
    const int64_t size = policy_.shard_parameters ? state.partition.shard() : state.partition.padded();
    state.stored = context_.zeros({size}, dtype_, Category::parameters);
    partitions.push_back(state.partition);
    states_.push_back(std::move(state));
  }
  buckets_ = make_buckets(partitions, bucket, BucketOrder::forward);
}

void Residency::prefetch(size_t unit) {
  State& state = states_[unit];
  if (!policy_.shard_parameters || state.gathered) return;
  state.gathered = context_.empty({state.partition.padded()}, dtype_, Category::parameters);
  state.arrival = ranks_.all_gather(state.stored, state.gathered);
}

void Residency::lease(size_t unit) {
  State& state = states_[unit];
  prefetch(unit);
  ++state.leases;
  arrive(unit);
}

void Residency::release(size_t unit) {
  State& state = states_[unit];
  require(state.leases > 0, "unit {} is released more often than it was leased", state.name);
  if (--state.leases == 0) state.gathered = {};
}

Tensor Residency::whole(size_t unit) const {
  const State& state = states_[unit];
  require(state.leases > 0, "the parameters of unit {} are read without a lease: run it through Tape::run_unit",
          state.name);
  return policy_.shard_parameters ? state.gathered : state.stored;
}

Tensor Residency::owned(size_t unit) const {
  const State& state = states_[unit];
  ranks_.wait(state.arrival);
  if (policy_.shard_parameters) return state.stored;
  const Interval own = state.partition.owned(ranks_.rank());
  return state.stored.flat(own.begin, own.end);
}

void Residency::exchange_updates() {
  if (policy_.shard_parameters || !policy_.shard_optimizer) return;  // shards, or everyone updated everything
  for (const Bucket& bucket : buckets_) exchange(bucket);
}

void Residency::exchange(const Bucket& bucket) {
  if (bucket.alone()) {
    State& state = states_[bucket.units().front()];
    state.arrival = ranks_.all_gather(owned(bucket.units().front()), state.stored);
    return;
  }
  while (exchanges_.size() > kExchanges) land_oldest();
  const Tensor packed = context_.empty({bucket.numel()}, dtype_, Category::communication);
  for (size_t place = 0; place < bucket.units().size(); ++place)
    copy(owned(bucket.units()[place]), bucket.part(packed, ranks_.rank(), place));
  exchanges_.push_back({ranks_.all_gather(bucket.part(packed, ranks_.rank()), packed), &bucket, packed});
}

void Residency::land_oldest() {
  const Exchange exchange = std::move(exchanges_.front());
  exchanges_.pop_front();
  ranks_.wait(exchange.event);
  for (size_t place = 0; place < exchange.bucket->units().size(); ++place) {
    const State& state = states_[exchange.bucket->units()[place]];
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      const Interval part = state.partition.owned(rank);
      if (rank != ranks_.rank())
        copy(exchange.bucket->part(exchange.packed, rank, place), state.stored.flat(part.begin, part.end));
    }
  }
}

void Residency::arrive(size_t unit) {
  const auto holds = [&](const Exchange& exchange) {
    const std::vector<size_t>& units = exchange.bucket->units();
    return std::find(units.begin(), units.end(), unit) != units.end();
  };
  // Collectives end in the order in which they began: what is before the Unit's bucket has arrived too.
  while (std::any_of(exchanges_.begin(), exchanges_.end(), holds)) land_oldest();
  ranks_.wait(states_[unit].arrival);
}

void Residency::settle() {
  for (size_t unit = 0; unit < states_.size(); ++unit) arrive(unit);
}

}  // namespace nought
