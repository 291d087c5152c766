#include "nought/zero/state_store.h"

#include <algorithm>
#include <utility>

#include "nought/aio/pieces.h"
#include "nought/base/math.h"
#include "nought/base/timing.h"

namespace nought {

StateStore::StateStore(const Context& context, const OffloadOptions& options, const std::string& owner,
                       std::shared_ptr<SwapSpace> space)
    : context_(context),
      options_(options),
      pool_(context, {.tier = options.tier,
                      .what = "optimizer states",
                      .category = Category::optimizer,
                      .owner = owner,
                      .space = std::move(space)}) {}

size_t StateStore::add(const std::vector<StateRow>& rows, bool stays) {
  Slots& added = tiles_.emplace_back();
  for (const StateRow& row : rows)
    added.push_back(pool_.add(row.numel, row.dtype, stays ? Pool::device : options_.tier.pool));
  return tiles_.size() - 1;
}

std::vector<StateStore::Place> StateStore::make_places(std::span<const Use> uses) const {
  std::vector<Place> places(std::min(this->places(), std::max<size_t>(uses.size(), 1)));
  if (!in_file()) return places;
  int64_t most = 0;
  for (const Use& use : uses) {
    int64_t bytes = 0;
    for (const OffloadPool::Slot slot : tiles_[use.tile])
      if (pool_.in_file(slot)) bytes += round_up(pool_.bytes(slot), kDirectUnit);
    most = std::max(most, bytes);
  }
  for (Place& place : places)
    place.room = aligned(*context_.memory, {most}, DType::u8, Category::workspace, context_.memory->host_pool());
  return places;
}

std::vector<Tensor> StateStore::rows_in(const Place& place, const Slots& slots) const {
  std::vector<Tensor> rows;
  int64_t begin = 0;
  for (const OffloadPool::Slot slot : slots) {
    if (!pool_.in_file(slot)) {
      rows.push_back(pool_.values(slot));
      continue;
    }
    rows.push_back(place.room.flat(begin, begin + pool_.bytes(slot)).reinterpret(pool_.dtype(slot)));
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
  std::vector<Place> own;
  if (held_.empty()) own = make_places(uses);
  std::vector<Place>& places = held_.empty() ? own : held_;
  const bool ahead = places.size() > 1 && (!in_file() || options_.reads_ahead);
  double waited = 0;
  const auto await = [&waited](const Event& event) { waited += seconds_of([&] { event.wait(); }); };
  const auto start = [&](size_t i) {
    Place& place = places[i % places.size()];
    await(place.written);  // what was there before
    begin(i);
    const Slots& slots = tiles_[uses[i].tile];
    if (in_file()) place.read = pool_.read(parts(slots, uses[i].reads, rows_in(place, slots)));
  };
  for (size_t i = 0; i < uses.size(); ++i) {
    if (i == 0 || !ahead) start(i);
    if (ahead && i + 1 < uses.size()) start(i + 1);
    Place& place = places[i % places.size()];
    await(place.read);
    const Slots& slots = tiles_[uses[i].tile];
    const std::vector<Tensor> rows = rows_in(place, slots);
    work(i, rows);
    if (!in_file()) continue;
    place.written = pool_.write(parts(slots, uses[i].writes, rows));
    if (!options_.writes_behind) await(place.written);
  }
  for (const Place& place : places) await(place.written);
  return waited;
}

}  // namespace nought
