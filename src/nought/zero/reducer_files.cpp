// The part of Reducer whose whole gradients are in a file between the backward passes of a step: they come back when a
// micro-batch adds to them, and go behind it. So each product is added to what earlier micro-batches left, as in
// memory.
#include <utility>

#include "nought/zero/reducer.h"

namespace nought {

Tensor Reducer::early_part(const State& state, Whole& whole, Interval range, bool accumulate) {
  for (const Whole::Part& part : whole.early)
    if (part.range == range) return part.values;
  Tensor values;
  if (accumulate) {  // earlier micro-batches have written to it: it is in the file
    const FileGradients::Arrival arrival = files_->bring(*state.file, range);
    files_->await(arrival);
    values = arrival.into;
  } else {
    values = context_.empty({range.size()}, dtype_, Category::gradients);
  }
  whole.early.push_back({range, values});
  return values;
}

Tensor Reducer::take_up(State& state) {
  files_->settle(/*under_way=*/1);  // one is written while another one is added to
  if (!state.shard_begun) return files_->device_room(state.partition.padded(), dtype_);
  const FileGradients::Arrival arrival = state.coming ? *std::exchange(state.coming, {}) : files_->bring(*state.file);
  for (size_t next = place_of(state.at); next-- > 0;) {
    State& below = states_[next];
    if (!swaps_whole(below) || !below.shard_begun || below.whole.values) continue;
    if (overlap_ && !below.coming) below.coming = files_->bring(*below.file);
    break;
  }
  files_->await(arrival);
  return arrival.into;
}

void Reducer::put_back(State& state, bool last) {
  clear_unwritten(state, state.whole);
  if (last) add_parts(state, state.whole);
  const Tensor values = std::exchange(state.whole.values, {});
  const Event written = files_->take(*state.file, values, /*add=*/false, last);
  state.shard_begun = true;
  if (last) state.finished = state.landed = true, state.arrival = written;
  if (!overlap_) files_->settle();
}

void Reducer::finish_swapped(MicroBatch& of, size_t place) {
  State& state = states_[place];
  if (of.begun_[place]) --state.open, of.begun_[place] = false;
  const bool is_here = state.whole.values || !state.whole.early.empty();
  if (of.last_ || (is_here && state.open == 0)) put_back(state, of.last_);  // else others are adding to it
}

}  // namespace nought
