// The second hop of a Reducer: replicas add what the ranks of each have summed.
#include <utility>

#include "nought/comm/flight_recorder.h"
#include "nought/zero/reducer.h"

namespace nought {

Event Reducer::over_replicas(const Event& reduced, const Tensor& sum) const {
  if (!has_replicas()) return reduced;
  Communicator& replicas = mesh_.group(Group::replicas);
  replicas.follow(reduced);
  return replicas.all_reduce(sum);
}

void Reducer::cross(const std::vector<size_t>& places) {
  if (!has_replicas() || places.empty()) return;
  Communicator& replicas = mesh_.group(Group::replicas);
  const FlightSubject subject(replicas, states_[places.front()].unit->name());
  for (const size_t place : places) states_[place].crossed = true;
  if (places.size() == 1 && wire_ == dtype_) {
    State& alone = states_[places.front()];
    alone.reduction = replicas.all_reduce(alone.shard), alone.in_place = true;
    return;
  }
  int64_t size = 0;
  for (const size_t place : places) size += states_[place].partition.shard();
  Flight flight{.ranks = &replicas,
                .event = {},
                .sent = context_.empty({size}, wire_, Category::communication),
                .destinations = {},
                .final = places};
  int64_t begin = 0;
  for (const size_t place : places) {
    const Tensor& shard = states_[place].shard;
    const Tensor part = flight.sent.flat(begin, begin + shard.numel());
    begin += shard.numel();
    copy_as(context_, shard, part);
    flight.destinations.push_back({part, shard});
  }
  flight.event = replicas.all_reduce(flight.sent);
  crossings_.push_back(std::move(flight));
}

void Reducer::complete_oldest_crossing() {
  const Flight flight = std::move(crossings_.front());
  crossings_.pop_front();
  complete(flight);
}

}  // namespace nought
