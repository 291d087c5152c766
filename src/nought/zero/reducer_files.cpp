// The part of Reducer whose whole gradients are in a file between the backward passes of a step: they come back when a
// micro-batch adds to them, and go behind it. So each product is added to what earlier micro-batches left, as in
// memory.
#include <utility>

#include "nought/zero/reducer.h"

namespace nought {

Tensor Reducer::early_part(const SegmentGradients& state, WholeGradients& whole, Interval range, bool accumulate) {
  for (const WholeGradients::Part& part : whole.early)
    if (part.range == range) return part.values;
  Tensor values;
  if (accumulate) {  // earlier micro-batches have written to it: it is in the file
    values = store_->await(store_->bring(*state.stored, range));
  } else {
    values = context_.empty({range.size()}, dtype_, Category::gradients);
  }
  whole.early.push_back({range, values});
  return values;
}

Tensor Reducer::take_up(SegmentGradients& state) {
  store_->settle(UnderWay::kMost - 1);  // one is written while another one is added to
  if (!state.shard_begun) return store_->device_room(state.partition.padded(), dtype_, Category::gradients);
  const GradientStore::Arrival arrival = state.coming ? *std::exchange(state.coming, {}) : store_->bring(*state.stored);
  for (size_t next = place_of(state.at); next-- > 0;) {
    SegmentGradients& below = segments_[next];
    if (!below.swaps_whole() || !below.shard_begun || below.whole.values) continue;
    if (overlap_ && !below.coming) below.coming = store_->bring(*below.stored);
    break;
  }
  return store_->await(arrival);
}

void Reducer::put_back(SegmentGradients& state, bool last) {
  clear_unwritten(state, state.whole);
  if (last) add_parts(state, state.whole);
  const Tensor values = std::exchange(state.whole.values, {});
  const Event written = store_->take(*state.stored, values, /*add=*/false, last);
  state.shard_begun = true;
  if (last) state.finished = state.completed = true, state.arrival = written;
  if (!overlap_) store_->settle();
}

void Reducer::finish_swapped(MicroBatch& of, size_t place) {
  SegmentGradients& state = segments_[place];
  if (of.begun_[place]) --state.open, of.begun_[place] = false;
  const bool is_here = state.whole.values || !state.whole.early.empty();
  if (of.last_ || (is_here && state.open == 0)) put_back(state, of.last_);  // else others are adding to it
}

}  // namespace nought
