#include "nought/zero/residency.h"

namespace nought {

Residency::Residency(const Context& context, Communicator& ranks, Policy policy, DType dtype,
                     const std::vector<std::unique_ptr<Unit>>& units)
    : context_(context), ranks_(ranks), policy_(policy), dtype_(dtype) {
  for (const auto& unit : units) {
    State state;
    state.partition = Partition(unit->numel(), ranks_.size());
    state.name = unit->name();
    const int64_t size = policy_.shard_parameters ? state.partition.shard() : state.partition.padded();
    state.stored = context_.zeros({size}, dtype_, Category::parameters);
    states_.push_back(std::move(state));
  }
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
  ranks_.wait(state.arrival);
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
  for (size_t unit = 0; unit < states_.size(); ++unit)
    states_[unit].arrival = ranks_.all_gather(owned(unit), states_[unit].stored);
}

void Residency::settle() {
  for (State& state : states_) ranks_.wait(state.arrival);
}

}  // namespace nought
