#include "nought/zero/update_transfers.h"

namespace nought {

UpdateTransfers::UpdateTransfers(const Context& context, size_t places)
    : context_(context),
      down_(context.memory->device().make_stream("states down")),
      up_(context.memory->device().make_stream("states up")),
      places_(places) {}

void UpdateTransfers::begin(int64_t most) {
  most_ = most;
  const Event before = context_.stream->record();
  down_->wait(before);
  up_->wait(before);
}

void UpdateTransfers::join() { context_.stream->wait(up_->record()); }

void UpdateTransfers::end() {
  for (Place& place : places_) place.rooms = {};  // what is on its way keeps its own
  join();
}

Event UpdateTransfers::bring(const Tensor& from, const Tensor& to) {
  down_->wait(context_.stream->record());
  copy(from, to, *down_);
  bytes_down_ += from.bytes();
  return down_->record();
}

void UpdateTransfers::down(const Tensor& from, const Tensor& to, size_t place) {
  copy(from, to, *down_);
  places_[place].down = down_->record();
  bytes_down_ += from.bytes();
}

void UpdateTransfers::up(const Tensor& from, const Tensor& to, size_t place) {
  copy(from, to, *up_);
  places_[place].up = up_->record();
  bytes_up_ += from.bytes();
}

Tensor UpdateTransfers::room(size_t place, Room room, Interval elements, DType dtype) {
  Tensor& whole = places_[place].rooms[static_cast<size_t>(room)];
  if (!whole || whole.dtype() != dtype)
    whole = Tensor::empty(*context_.memory, {most_}, dtype, Category::workspace, Pool::host);
  return whole.flat(elements.begin, elements.end);
}

}  // namespace nought
