// How the Reducer sends gradients quantized: over which ranks, and with the errors of which bucket.
#include <utility>

#include "nought/zero/reducer.h"

namespace nought {

void Reducer::make_errors() {
  if (!codes_.feedback) return;
  for (const Bucket& bucket : buckets_)
    errors_.push_back(is_quantized(states_[bucket.members().front()])
                          ? make_wire_errors(context_, wire_ranks(bucket), bucket.numel(), dtype_)
                          : WireErrors());
}

WireRanks Reducer::wire_ranks(const Bucket& bucket) const {
  const bool all = &bucket.group() == &mesh_.group(Group::parameters);
  return {&bucket.group(), mesh_.over_hosts(all ? Group::parameters : Group::expert_parameters)};
}

std::vector<RankLocalTensor> Reducer::errors() const {
  std::vector<RankLocalTensor> all;
  for (size_t bucket = 0; bucket < errors_.size(); ++bucket) {
    const WireErrors& of = errors_[bucket];
    const State& first = states_[buckets_[bucket].members().front()];
    const auto add = [&](const char* what, const Tensor& tensor) {
      if (of && tensor)
        all.push_back({fmt::format("loco_error/{}.{}.{}", first.unit->name(), first.at.segment, what), tensor});
    };
    add("ranks", of.first), add("hosts", of.second), add("reductions", of.count);
  }
  return all;
}

void Reducer::begin_reduction(Flight& flight, const State& state, const Tensor& sum) {
  if (!is_quantized(state)) {
    flight.event = state.ranks->reduce_scatter(flight.sent, sum);
    return;
  }
  const Tensor whole = std::exchange(flight.sent, {});  // the codes travel in its place
  flight.quantized = std::make_shared<ShardReduction>(context_, wire_ranks(buckets_[state.bucket]), codes_, whole, sum,
                                                      codes_.feedback ? &errors_[state.bucket] : nullptr);
}

}  // namespace nought
