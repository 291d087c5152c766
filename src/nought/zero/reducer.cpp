#include "nought/zero/reducer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "nought/comm/flight_recorder.h"
#include "nought/zero/placement.h"

namespace nought {

Reducer::Reducer(const Context& context, const Mesh& mesh, const ShardingOptions& options,
                 const std::vector<std::unique_ptr<Unit>>& units)
    : context_(context), mesh_(mesh), units_(units), dtype_(options.gradient_dtype), overlap_(options.overlap) {
  const OffloadTier tier = options.offload_optimizer.gradient_tier();
  const bool stay = tier.pool == Pool::device || (tier.pool == Pool::host && context_.memory->device().is_host());
  // Gradients to which replicas add theirs stay on the device.
  if (!stay && mesh_.group(Group::replicas).size() == 1)
    store_ = std::make_unique<GradientStore>(context_, dtype_, tier, fmt::format("rank {}", mesh_.world().rank()));
  for (const SegmentIndex at : segments_of(units, /*trainable=*/true)) add_segment(at, options);
  if (store_) store_->open();
  reductions_.emplace(context_, mesh_, options, segments_, store_.get());
}

void Reducer::add_segment(SegmentIndex at, const ShardingOptions& options) {
  const Unit& unit = *units_[at.unit];
  const Segment& segment = unit.segments()[at.segment];
  Communicator& ranks = mesh_.group(sharing_group(segment.cut_along));
  SegmentGradients added{.at = at,
                         .unit = &unit,
                         .ranks = &ranks,
                         .policy = options.policy.for_ranks(ranks.size()),
                         .partition = Partition(segment, ranks.size(), options.virtual_ranks)};
  const Partition& partition = added.partition;
  added.gaps = gaps_in(unit, at.segment, partition.padded());
  const bool is_alone = store_ && store_->in_file() && ranks.size() == 1;
  // A tree has room for sums alone: what is in a file is brought when two of them meet.
  if (is_alone && tree_levels(options) > 0) added.policy.shard_gradients = true;
  shards_ |= added.policy.shard_gradients;
  if (store_ && !unit.has_copy() && !unit.is_copy() && (added.policy.shard_gradients || is_alone))
    added.stored = store_->add(partition.shard(), counted_by_virtual_ranks(segment, partition, mesh_));
  if (in_file(added)) {
    added.whole.written.assign(unit.parameters().size(), false);
  } else if (added.policy.shard_gradients) {
    added.shard =
        added.stored ? store_->held(*added.stored) : context_.zeros({partition.shard()}, dtype_, Category::gradients);
  } else {
    added.whole = {context_.zeros({partition.padded()}, dtype_, Category::gradients),
                   std::vector<bool>(unit.parameters().size(), false)};
  }
  if (tree_levels(options) > 0) add_tree(added, options);
  segments_.push_back(std::move(added));
}

int Reducer::tree_levels(const ShardingOptions& options) const {
  return options.virtual_ranks == 0 ? 0
                                    : TreeSums::levels_of(options.virtual_ranks / mesh_.group(Group::samples).size());
}

void Reducer::add_tree(SegmentGradients& to, const ShardingOptions& options) {
  const int levels = tree_levels(options);
  has_trees_ = true;
  if (to.stored) {
    std::vector<OffloadPool::Slot> slots{*to.stored};
    while (std::ssize(slots) < levels) slots.push_back(store_->add(to.partition.shard(), {}));
    to.tree = TreeSums(*store_, std::move(slots));
    return;
  }
  std::vector<Tensor> sums{to.policy.shard_gradients ? to.shard : to.whole.values};
  while (std::ssize(sums) < levels) sums.push_back(context_.zeros(sums.front().shape(), dtype_, Category::gradients));
  to.tree = TreeSums(std::move(sums));
}

size_t Reducer::place_of(SegmentIndex at) const {
  const auto found =
      std::find_if(segments_.begin(), segments_.end(), [&](const SegmentGradients& state) { return state.at == at; });
  require(found != segments_.end(), "segment {} of unit {} is not trained: it has no gradient", at.segment,
          units_[at.unit]->name());
  return static_cast<size_t>(found - segments_.begin());
}

Reducer::MicroBatch Reducer::begin_micro_batch(bool last) {
  MicroBatch begun;
  begun.last_ = last;
  const int64_t number = begun_++;
  if (store_) begun.begun_.assign(segments_.size(), false);
  if (!shards_ && !has_trees_) return begun;
  for (const SegmentGradients& state : segments_)
    begun.wholes_.push_back(
        {.written = std::vector<bool>(state.unit->parameters().size(), false), .micro_batch = number});
  return begun;
}

void Reducer::keep_local(bool keeps) {
  require(!keeps || (!shards_ && !has_trees_), "a rank keeps no whole gradients of its own where they are sharded");
  keeps_local_ = keeps;
}

WholeGradients& Reducer::whole_of(MicroBatch& of, size_t place) {
  return is_of_micro_batch(segments_[place]) ? of.wholes_[place] : segments_[place].whole;
}

void Reducer::make_whole(SegmentGradients& state, WholeGradients& whole) {
  if (whole.values) return;
  reductions_->make_room();
  if (state.tree && !state.policy.shard_gradients) whole.values = state.tree.place_of(whole.micro_batch);
  if (!whole.values)
    whole.values =
        state.swaps_whole() ? take_up(state) : context_.empty({state.partition.padded()}, dtype_, Category::gradients);
  for (const auto& [range, values] : std::exchange(whole.early, {}))
    context_.copy(values, whole.values.flat(range.begin, range.end));
}

void Reducer::await_readers() { context_.stream->wait(std::exchange(read_, {})); }

GradSink Reducer::sink(MicroBatch& of, size_t unit, size_t first, size_t last, bool early) {
  await_readers();
  const size_t place = place_of({unit, units_[unit]->parameters()[first].segment});
  SegmentGradients& state = segments_[place];
  WholeGradients& whole = whole_of(of, place);
  if (state.swaps_whole() && !of.begun_[place]) of.begun_[place] = true, ++state.open;
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

void Reducer::clear_unwritten(SegmentGradients& state, WholeGradients& whole) {
  make_whole(state, whole);
  const auto clear = [&](Interval range) { context_.zero(whole.values.flat(range.begin, range.end)); };
  for (const size_t i : state.unit->segments()[state.at.segment].parameters)
    if (!whole.written[i]) clear(state.unit->parameters()[i].range);
  for (const Interval gap : state.gaps) clear(gap);
}

void Reducer::add_parts(const SegmentGradients& state, const WholeGradients& whole) {
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
  for (size_t place = 0; place < segments_.size(); ++place) {
    SegmentGradients& state = segments_[place];
    if (state.at.unit != unit) continue;
    if (state.swaps_whole()) {
      finish_swapped(of, place);
    } else if (is_of_micro_batch(state) || of.last_) {
      finish(state, whole_of(of, place), of.last_);
    }
  }
}

void Reducer::reduce_so_far(MicroBatch& of, size_t unit) {
  for (size_t place = 0; place < segments_.size(); ++place) {
    SegmentGradients& state = segments_[place];
    if (state.at.unit != unit || state.tree) continue;  // a tree gets all that a micro-batch gives at once
    if (state.policy.shard_gradients) finish(state, of.wholes_[place], /*last=*/false);
    if (state.swaps_whole() && state.whole.values && state.open == 1) put_back(state, /*last=*/false);
  }
}

void Reducer::finish(SegmentGradients& state, WholeGradients& whole, bool last) {
  clear_unwritten(state, whole);
  add_parts(state, whole);
  if (keeps_local_) {
    state.finished = state.completed = true;
    return;
  }
  if (state.tree && !state.policy.shard_gradients) {
    state.tree.add(context_, whole.micro_batch, std::exchange(whole.values, {}), last);
    if (last) begin_reduction(state, state.whole, last);
    return;
  }
  begin_reduction(state, whole, last);
  if (state.policy.shard_gradients) std::fill(whole.written.begin(), whole.written.end(), false);
}

void Reducer::begin_reduction(SegmentGradients& state, WholeGradients& whole, bool last) {
  reductions_->begin(state, whole, last);
  state.finished = true;
  if (!overlap_) reductions_->complete();
}

void Reducer::finish_left_out(SegmentGradients& state) {
  if (!state.tree) return finish(state, state.whole, /*last=*/true);
  state.tree.finish(context_, begun_, state.partition.padded(), dtype_);
  begin_reduction(state, state.whole, /*last=*/true);
}

void Reducer::finish_step() {
  await_readers();
  // Without gradient sharding earlier micro-batches may have written what only the last one reduces.
  for (size_t i = segments_.size(); i-- > 0;)
    if (segments_[i].swaps_whole() && !segments_[i].finished) {
      put_back(segments_[i], /*last=*/true);
    } else if (!segments_[i].policy.shard_gradients && !segments_[i].finished) {
      finish_left_out(segments_[i]);
    }
  settle();
  for (size_t i = segments_.size(); i-- > 0;) {
    SegmentGradients& state = segments_[i];
    if (!state.policy.shard_gradients) continue;
    if (!state.shard_begun && in_file(state)) {
      store_->take(*state.stored, context_.zeros({state.partition.shard()}, dtype_, Category::gradients),
                   /*add=*/false, /*last=*/true);
    } else if (!state.shard_begun && state.stored) {
      std::memset(state.shard.raw(), 0, static_cast<size_t>(state.shard.bytes()));
    } else if (!state.shard_begun) {
      context_.zero(state.shard);
    } else if (state.tree) {
      state.tree.finish(context_, begun_, state.partition.shard(), dtype_);
    }
    if (!state.crossed) reductions_->cross(state);
  }
  reductions_->complete();
}

void Reducer::settle() {
  reductions_->send_filling();
  reductions_->complete();
}

bool Reducer::is_final(SegmentIndex at) {
  SegmentGradients& state = segments_[place_of(at)];
  return !keeps_local_ && state.finished && reductions_->is_final(state);
}

Tensor Reducer::owned(SegmentIndex at) const {
  const SegmentGradients& state = segments_[place_of(at)];
  if (in_file(state)) return store_->values(*state.stored);
  if (state.policy.shard_gradients) return state.shard;
  const Interval own = state.partition.owned(state.ranks->rank());
  return state.whole.values.flat(own.begin, own.end);
}

Tensor Reducer::own(SegmentIndex at) {
  SegmentGradients& state = segments_[place_of(at)];
  require(keeps_local_, "gradients of unit {} are those of all ranks", state.unit->name());
  if (!state.finished) finish(state, state.whole, /*last=*/true);
  return state.whole.values;
}

Tensor Reducer::reduced(SegmentIndex at) const {
  const SegmentGradients& state = segments_[place_of(at)];
  return state.policy.shard_optimizer || in_file(state) ? owned(at) : state.whole.values;
}

void Reducer::reset() {
  begun_ = 0;
  for (SegmentGradients& state : segments_) {
    state.tree.reset();
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
