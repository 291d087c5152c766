#include "nought/zero/reductions.h"

#include <algorithm>
#include <utility>

#include "nought/comm/flight_recorder.h"
#include "nought/kernels/ops/wire.h"

namespace nought {

namespace {
/// One segment's gradients may be on the wire while the next one's are being written: two whole buffers rotate.
constexpr size_t kFlights = 1;
}  // namespace

Reductions::Reductions(const Context& context, const Mesh& mesh, const ShardingOptions& options,
                       std::vector<SegmentGradients>& segments, GradientStore* store)
    : context_(context),
      mesh_(mesh),
      segments_(segments),
      store_(store),
      dtype_(options.gradient_dtype),
      wire_(options.codes.gradient_bits > 0 ? dtype_ : options.wire()),
      sum_(options.virtual_ranks > 0 ? ReduceOp::pairwise_sum : ReduceOp::sum),
      codes_(options.codes) {
  std::vector<SharedSegment> shared;
  const bool share_scales = codes_.gradient_bits > 0 && has_wire_scales(codes_.gradient_bits);
  for (const SegmentGradients& each : segments_)
    shared.push_back({.partition = each.partition,
                      .ranks = each.ranks,
                      .alone = each.unit->tile_of() != nullptr,
                      .apart = share_scales ? each.unit->segments()[each.at.segment].cut_along : Axes()});
  buckets_ = make_buckets(shared, options.reduce_bucket, BucketOrder::backward);
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket)
    for (size_t place = 0; place < buckets_[bucket].members().size(); ++place) {
      SegmentGradients& member = segments_[buckets_[bucket].members()[place]];
      member.bucket = bucket, member.place = place;
    }
  make_errors();
}

void Reductions::begin(SegmentGradients& of, WholeGradients& whole, bool last) {
  if (!buckets_[of.bucket].alone()) {
    pack(of, whole, last);
  } else if (of.policy.shard_gradients) {
    reduce_to_shard(of, whole, last);
  } else {
    reduce_whole(of);
  }
}

void Reductions::send_filling() {
  for (const Bucket& bucket : buckets_) send_filling(bucket.lane());
}

void Reductions::make_room() {
  while (flights_.size() > kFlights) complete_oldest();
}

Tensor Reductions::to_wire(const Tensor& whole) const {
  if (wire_ == dtype_) return whole;
  const Tensor sent = context_.empty(whole.shape(), wire_, Category::communication);
  context_.run(Cast{.x = whole, .y = sent});
  return sent;
}

void Reductions::reduce_whole(SegmentGradients& of) {
  Communicator& ranks = *of.ranks;
  of.completed = ranks.size() == 1 && !has_replicas();
  if (of.completed) return;
  const Interval own = of.partition.owned(ranks.rank());
  const FlightSubject subject(mesh_.world(), of.unit->name());
  const Tensor sent = to_wire(of.whole.values), mine = sent.flat(own.begin, own.end);
  Event event = over_replicas(ranks.size() > 1 ? ranks.reduce_scatter(sent, mine, sum_) : Event(), mine);
  if (!of.policy.shard_optimizer && ranks.size() > 1) {
    if (has_replicas()) ranks.follow(event);
    event = ranks.all_gather(mine, sent);
  }
  if (wire_ == dtype_) {
    of.reduction = event, of.in_place = true;
    return;
  }
  Destination destination{sent, of.whole.values};
  if (of.policy.shard_optimizer) destination = {mine, of.whole.values.flat(own.begin, own.end)};
  send({.ranks = &ranks, .event = event, .sent = sent, .destinations = {destination}, .final = {place_of(of)}});
}

Reductions::Destination Reductions::shard_destination(SegmentGradients& of, int64_t micro_batch, const Tensor& from,
                                                      bool last) const {
  const bool add = std::exchange(of.shard_begun, true);
  if (of.tree) return {.from = from, .into = {}, .last = last, .tree = &of.tree, .micro_batch = micro_batch};
  return {from, of.shard, add, of.stored, last};
}

void Reductions::reduce_to_shard(SegmentGradients& of, WholeGradients& whole, bool last) {
  const Tensor sent = to_wire(std::exchange(whole.values, {}));
  const Tensor place = wire_ != dtype_ || of.stored ? Tensor()
                       : of.tree                    ? of.tree.place_of(whole.micro_batch)
                       : of.shard_begun             ? Tensor()
                                                    : of.shard;
  const bool direct = place.defined();
  const int64_t numel = of.partition.shard();
  const Tensor sum = direct      ? place
                     : of.stored ? store_->device_room(numel, wire_, Category::gradients)
                                 : context_.empty({numel}, wire_, Category::gradients);
  const FlightSubject subject(*of.ranks, of.unit->name());
  Flight flight{.ranks = of.ranks, .event = {}, .sent = sent, .destinations = {}};
  begin_reduction(flight, of, sum);
  const Destination destination = shard_destination(of, whole.micro_batch, sum, last);
  if (!direct || of.tree) flight.destinations.push_back(destination);
  if (last) flight.last = {place_of(of)};
  if (!has_replicas()) flight.final = flight.last;
  send(std::move(flight));
}

/// The first segment of a bucket makes room for all; the last one sends it.
void Reductions::pack(SegmentGradients& of, WholeGradients& whole, bool last) {
  const Bucket& bucket = buckets_[of.bucket];
  const size_t lane = bucket.lane();
  const auto found = filling_.find(lane);
  const auto is_another = [&](const Filling& filling) {
    return filling.bucket != of.bucket || filling.present[of.place] ||
           (of.tree && filling.micro_batch != whole.micro_batch);
  };
  if (found != filling_.end() && is_another(found->second)) send_filling(lane);
  if (!filling_.contains(lane)) {
    make_room();
    filling_[lane] = {.bucket = of.bucket,
                      .packed = context_.empty({bucket.numel()}, wire_, Category::communication),
                      .present = std::vector<bool>(bucket.members().size(), false),
                      .micro_batch = whole.micro_batch};
  }
  Filling& filling = filling_[lane];
  for (int rank = 0; rank < of.ranks->size(); ++rank) {
    const Interval owned = of.partition.owned(rank);
    copy_as(context_, whole.values.flat(owned.begin, owned.end), bucket.part(filling.packed, rank, of.place));
  }
  if (of.policy.shard_gradients) whole.values = {};
  filling.present[of.place] = true;
  if (last && of.policy.shard_gradients) filling.last.push_back(bucket.members()[of.place]);
  if (std::find(filling.present.begin(), filling.present.end(), false) == filling.present.end()) send_filling(lane);
}

void Reductions::send_filling(size_t lane) {
  const auto found = filling_.find(lane);
  if (found == filling_.end()) return;
  Filling filling = std::move(found->second);
  filling_.erase(found);
  send_bucket(std::move(filling));
}

void Reductions::send_bucket(Filling filling) {
  const Bucket& bucket = buckets_[filling.bucket];
  Communicator& ranks = bucket.group();
  const Tensor& packed = filling.packed;
  Flight flight{.ranks = &ranks, .event = {}, .sent = packed, .destinations = {}, .last = filling.last};
  if (!has_replicas()) flight.final = filling.last;
  for (size_t place = 0; place < bucket.members().size(); ++place) {
    SegmentGradients& of = segments_[bucket.members()[place]];
    if (filling.present[place] && !of.policy.shard_gradients) flight.final.push_back(bucket.members()[place]);
    for (int rank = 0; rank < ranks.size(); ++rank) {
      const Tensor part = bucket.part(packed, rank, place);
      if (!filling.present[place]) {
        context_.zero(part);  // a segment that this pass left out
      } else if (of.policy.shard_gradients && rank == ranks.rank()) {
        const std::vector<size_t>& last = filling.last;
        const bool is_last = std::find(last.begin(), last.end(), bucket.members()[place]) != last.end();
        flight.destinations.push_back(shard_destination(of, filling.micro_batch, part, is_last));
      } else if (!of.policy.shard_optimizer || rank == ranks.rank()) {
        const Interval owned = of.partition.owned(rank);
        flight.destinations.push_back({part, of.whole.values.flat(owned.begin, owned.end)});
      }
    }
  }
  const SegmentGradients& first = segments_[bucket.members().front()];
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

void Reductions::send(Flight flight) {
  for (Flight& earlier : flights_)
    if (earlier.quantized) earlier.quantized->cross();  // its second hop runs overlapped with the next Unit's passes
  flights_.push_back(std::move(flight));
  // Gradients that became a copy for the wire free their own buffer at once: bound the copies here.
  while (wire_ != dtype_ && flights_.size() > kFlights + 1) complete_oldest();
}

bool Reductions::is_final(SegmentGradients& of) {
  if (!of.completed && of.in_place && of.reduction.ready()) {
    of.ranks->wait(of.reduction, *context_.stream);
    of.completed = true;
  }
  return of.completed && of.arrival.ready();
}

void Reductions::complete(const Flight& flight) {
  if (flight.quantized) flight.quantized->complete();
  flight.ranks->wait(flight.event, *context_.stream);
  Event arrival;
  for (const auto& [from, into, add, stored, last, tree, micro_batch] : flight.destinations) {
    if (tree != nullptr) {
      arrival = tree->add(context_, micro_batch, from, last);
    } else if (stored) {
      arrival = store_->take(*stored, from, add, last);
    } else if (add) {
      context_.run(AddTo{.x = from, .into = into});
    } else {
      copy_as(context_, from, into);
    }
  }
  for (const size_t place : flight.final) segments_[place].completed = true, segments_[place].arrival = arrival;
}

void Reductions::complete_oldest() {
  const Flight flight = std::move(flights_.front());
  flights_.pop_front();
  complete(flight);
  cross(flight.last);
  while (crossings_.size() > kFlights) complete_oldest_crossing();
}

void Reductions::complete() {
  for (Flight& flight : flights_)
    if (flight.quantized) flight.quantized->cross();
  while (!flights_.empty()) complete_oldest();
  while (!crossings_.empty()) complete_oldest_crossing();
  for (const SegmentGradients& of : segments_) of.ranks->wait(of.reduction, *context_.stream);
  if (store_) store_->settle();
}

void Reductions::make_errors() {
  if (!codes_.feedback) return;
  for (const Bucket& bucket : buckets_)
    errors_.push_back(is_quantized(segments_[bucket.members().front()])
                          ? make_wire_errors(context_, wire_ranks(bucket), bucket.numel(), dtype_)
                          : WireErrors());
}

WireRanks Reductions::wire_ranks(const Bucket& bucket) const {
  const bool all = &bucket.group() == &mesh_.group(Group::parameters);
  return {&bucket.group(), mesh_.over_hosts(all ? Group::parameters : Group::expert_parameters)};
}

std::vector<RankLocalTensor> Reductions::errors() const {
  std::vector<RankLocalTensor> all;
  for (size_t bucket = 0; bucket < errors_.size(); ++bucket) {
    const WireErrors& of = errors_[bucket];
    const SegmentGradients& first = segments_[buckets_[bucket].members().front()];
    const auto add = [&](const char* what, const Tensor& tensor) {
      if (of && tensor)
        all.push_back({fmt::format("loco_error/{}.{}.{}", first.unit->name(), first.at.segment, what), tensor});
    };
    add("ranks", of.first), add("hosts", of.second), add("reductions", of.count);
  }
  return all;
}

void Reductions::begin_reduction(Flight& flight, const SegmentGradients& of, const Tensor& sum) {
  if (!is_quantized(of)) {
    flight.event = of.ranks->reduce_scatter(flight.sent, sum, sum_);
    return;
  }
  const Tensor whole = std::exchange(flight.sent, {});  // the codes travel in its place
  flight.quantized = std::make_shared<ShardReduction>(context_, wire_ranks(buckets_[of.bucket]), codes_, whole, sum,
                                                      codes_.feedback ? &errors_[of.bucket] : nullptr);
}

Event Reductions::over_replicas(const Event& reduced, const Tensor& sum) const {
  if (!has_replicas()) return reduced;
  Communicator& replicas = mesh_.group(Group::replicas);
  replicas.follow(reduced);
  return replicas.all_reduce(sum, sum_);
}

void Reductions::cross(const std::vector<size_t>& places) {
  if (!has_replicas() || places.empty()) return;
  Communicator& replicas = mesh_.group(Group::replicas);
  const FlightSubject subject(replicas, segments_[places.front()].unit->name());
  for (const size_t place : places) segments_[place].crossed = true;
  if (places.size() == 1 && wire_ == dtype_) {
    SegmentGradients& alone = segments_[places.front()];
    alone.reduction = replicas.all_reduce(alone.shard, sum_), alone.in_place = true;
    return;
  }
  int64_t size = 0;
  for (const size_t place : places) size += segments_[place].partition.shard();
  Flight flight{.ranks = &replicas,
                .event = {},
                .sent = context_.empty({size}, wire_, Category::communication),
                .destinations = {},
                .final = places};
  int64_t begin = 0;
  for (const size_t place : places) {
    const Tensor& shard = segments_[place].shard;
    const Tensor part = flight.sent.flat(begin, begin + shard.numel());
    begin += shard.numel();
    copy_as(context_, shard, part);
    flight.destinations.push_back({part, shard});
  }
  flight.event = replicas.all_reduce(flight.sent, sum_);
  crossings_.push_back(std::move(flight));
}

void Reductions::complete_oldest_crossing() {
  const Flight flight = std::move(crossings_.front());
  crossings_.pop_front();
  complete(flight);
}

}  // namespace nought
