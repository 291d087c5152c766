#include "nought/zero/state_store.h"

#include <algorithm>
#include <utility>

#include "nought/aio/pieces.h"
#include "nought/base/math.h"
#include "nought/base/timing.h"

namespace nought {

StateStore::StateStore(const Context& context, const OffloadOptions& options, const std::string& owner,
                       const OffloadPool* gradients)
    : context_(context),
      options_(options),
      gradients_(gradients),
      pool_(context, {.tier = options.tier,
                      .what = "optimizer states",
                      .category = Category::optimizer,
                      .owner = owner,
                      .space = gradients ? gradients->space() : nullptr}),
      places_(places()) {}

size_t StateStore::add(const std::vector<StateRow>& rows, bool stays, bool twice) {
  Slots &added = tiles_.emplace_back(), &second = aside_.emplace_back();
  const auto make = [&](const StateRow& row) {
    return pool_.add(row.numel, row.dtype, stays ? Pool::device : options_.tier.pool);
  };
  for (const StateRow& row : rows) {
    added.push_back(make(row));
    if (twice) second.push_back(row.before ? added.back() : make(row));
  }
  return tiles_.size() - 1;
}

void StateStore::copy_aside(const Context& by, size_t tile) const {
  for (size_t row = 0; row < tiles_[tile].size(); ++row) {
    const OffloadPool::Slot from = tiles_[tile][row], to = aside_[tile][row];
    if (from != to && !pool_.in_file(from)) by.copy(pool_.values(from), pool_.values(to));
  }
}

void StateStore::begin(int64_t most) {
  most_ = most;
  if (by_host()) copies().follow(context_.stream->record());
}

void StateStore::end() {
  if (!held_)
    for (Place& place : places_) place.rooms = {}, place.states = {};  // what is on its way keeps its own
  if (by_host()) copies().join();
}

void StateStore::make_states(std::span<const Use> uses) {
  if (!in_file()) return;
  int64_t most = 0;
  for (const Use& use : uses) {
    int64_t bytes = 0;
    for (size_t row = 0; row < tiles_[use.tile].size(); ++row)
      if (const OffloadPool::Slot slot = tiles_[use.tile][row]; use.moves(row) && pool_.in_file(slot))
        bytes += round_up(pool_.bytes(slot), kDirectUnit);
    most = std::max(most, bytes);
  }
  for (size_t i = 0; i < std::min(places_.size(), std::max<size_t>(uses.size(), 1)); ++i)
    places_[i].states = aligned(*context_.memory, {most}, DType::u8, Category::workspace, context_.memory->host_pool());
}

std::vector<Tensor> StateStore::rows_in(const Place& place, const Use& use) const {
  const Slots& slots = written_by(use);
  std::vector<Tensor> rows;
  int64_t begin = 0;
  for (size_t row = 0; row < slots.size(); ++row) {
    const OffloadPool::Slot slot = slots[row];
    if (!pool_.in_file(slot) || !use.moves(row)) {
      rows.push_back(pool_.in_file(slot) ? Tensor{} : pool_.values(slot));
      continue;
    }
    rows.push_back(place.states.flat(begin, begin + pool_.bytes(slot)).reinterpret(pool_.dtype(slot)));
    begin += round_up(pool_.bytes(slot), kDirectUnit);
  }
  return rows;
}

std::vector<OffloadPool::Part> StateStore::parts(const Slots& slots, RowSet chosen,
                                                 const std::vector<Tensor>& rows) const {
  std::vector<OffloadPool::Part> parts;
  for (size_t row = 0; row < slots.size(); ++row)
    if ((chosen >> row & 1) != 0 && pool_.in_file(slots[row])) parts.push_back({slots[row], 0, rows[row]});
  return parts;
}

double StateStore::run(std::span<const Use> uses, const std::function<void(size_t)>& begin,
                       const std::function<void(size_t, const std::vector<Tensor>&)>& work) {
  if (!held_) make_states(uses);
  const size_t count = std::min(places_.size(), std::max<size_t>(uses.size(), 1));
  const bool ahead = count > 1 && (!in_file() || options_.reads_ahead);
  double waited = 0;
  const auto await = [&waited](const Event& event) { waited += seconds_of([&] { event.wait(); }); };
  const auto start = [&](size_t i) {
    Place& place = places_[i % count];
    await(place.written);  // what was there before
    await(place.sent);
    begin(i);
    if (in_file())
      place.coming.push_back(pool_.read(parts(tiles_[uses[i].tile], uses[i].reads, rows_in(place, uses[i]))));
  };
  for (size_t i = 0; i < uses.size(); ++i) {
    if (i == 0 || !ahead) start(i);
    if (ahead && i + 1 < uses.size()) start(i + 1);
    Place& place = places_[i % count];
    for (const Event& event : std::exchange(place.coming, {})) await(event);
    const std::vector<Tensor> rows = rows_in(place, uses[i]);
    work(i, rows);
    if (!in_file()) continue;
    place.written = pool_.write(parts(written_by(uses[i]), uses[i].writes, rows));
    if (!options_.writes_behind) await(place.written);
  }
  for (Place& place : places_) {
    await(std::exchange(place.written, {}));
    if (!held_) place.states = {};
  }
  return waited;
}

Tensor StateStore::room(size_t place, Room room, Interval elements, DType dtype) {
  Tensor& whole = places_[place].rooms[static_cast<size_t>(room)];
  if (!whole || whole.dtype() != dtype)
    whole = gradients_ && room == Room::gradients
                ? gradients_->host_room(most_, dtype, Category::workspace)
                : Tensor::empty(*context_.memory, {most_}, dtype, Category::workspace, context_.memory->host_pool());
  return whole.flat(elements.begin, elements.end);
}

void StateStore::read_gradients(OffloadPool::Slot slot, std::span<const TrainedPiece> pieces, int64_t first,
                                DType dtype, size_t place) {
  // Pieces follow one another in the tile, and most of them in the file: one read takes these.
  std::vector<OffloadPool::Part> parts;
  int64_t begin = 0;
  for (const TrainedPiece& piece : pieces) {
    const int64_t here = piece.piece.in_segment.begin - first;
    if (parts.empty() || parts.back().first + parts.back().tensor.numel() != here) {
      parts.push_back({slot, here, {}});
      begin = piece.in_tile.begin;
    }
    parts.back().tensor = room(place, Room::gradients, {begin, piece.in_tile.end}, dtype);
  }
  places_[place].coming.push_back(gradients_->read(parts));
}

}  // namespace nought
