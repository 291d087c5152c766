#include "nought/zero/state_store.h"

#include <algorithm>
#include <utility>

#include "nought/aio/pieces.h"
#include "nought/base/math.h"
#include "nought/base/timing.h"

namespace nought {

StateStore::StateStore(const Context& context, Pool pool, const OffloadOptions& options, const std::string& owner,
                       std::shared_ptr<SwapSpace> space)
    : context_(context), pool_(pool), options_(options), space_(std::move(space)) {
  if (in_file() && !space_)
    space_ = std::make_shared<SwapSpace>(context_.memory, options_.folder, owner, options_.aio);
}

size_t StateStore::add(const std::vector<StateRow>& rows, bool stays) {
  Rows& added = tiles_.emplace_back();
  for (const StateRow& row : rows) {
    Row& kept = added.emplace_back(Row{.dtype = row.dtype, .numel = row.numel});
    if (in_file() && !stays) {
      kept.offset = file_bytes_;
      file_bytes_ += round_up(kept.bytes(), kSwapGrid);
    } else if (pool_ == Pool::device || stays) {
      kept.resident = context_.zeros({kept.numel}, kept.dtype, Category::optimizer);
    } else {
      kept.resident = Tensor::zeros(*context_.memory, {kept.numel}, kept.dtype, Category::optimizer, pool_);
    }
  }
  return tiles_.size() - 1;
}

void StateStore::open() {
  if (in_file()) file_ = std::make_unique<SwapFile>(*space_, "optimizer states", file_bytes_, Category::optimizer);
}

std::string StateStore::note() const {
  if (!in_file()) return {};
  const std::string why = space_->note().empty() ? "" : fmt::format(" ({})", space_->note());
  return fmt::format("optimizer states are in files in {}, by {}{}", options_.folder, name_of(space_->backend()), why);
}

std::vector<StateStore::Place> StateStore::make_places(std::span<const Use> uses) const {
  std::vector<Place> places(std::min(this->places(), std::max<size_t>(uses.size(), 1)));
  if (!in_file()) return places;
  int64_t most = 0;
  for (const Use& use : uses) {
    int64_t bytes = 0;
    for (const Row& row : tiles_[use.tile]) bytes += row.resident ? 0 : round_up(row.bytes(), kDirectUnit);
    most = std::max(most, bytes);
  }
  for (Place& place : places) place.room = aligned(*context_.memory, {most}, DType::u8, Category::workspace, pool_);
  return places;
}

std::vector<Tensor> StateStore::rows_in(const Place& place, const Rows& rows) const {
  std::vector<Tensor> tensors;
  int64_t begin = 0;
  for (const Row& row : rows) {
    if (row.resident) {
      tensors.push_back(row.resident);
      continue;
    }
    tensors.push_back(place.room.flat(begin, begin + row.bytes()).reinterpret(row.dtype));
    begin += round_up(row.bytes(), kDirectUnit);
  }
  return tensors;
}

std::vector<SwapPart> StateStore::parts(const Rows& rows, RowSet chosen, const std::vector<Tensor>& tensors) {
  std::vector<SwapPart> parts;
  for (size_t row = 0; row < rows.size(); ++row)
    if ((chosen >> row & 1) != 0 && !rows[row].resident) parts.push_back({rows[row].offset, tensors[row]});
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
    const Rows& rows = tiles_[uses[i].tile];
    if (in_file()) place.read = file_->read(parts(rows, uses[i].reads, rows_in(place, rows)));
  };
  for (size_t i = 0; i < uses.size(); ++i) {
    if (i == 0 || !ahead) start(i);
    if (ahead && i + 1 < uses.size()) start(i + 1);
    Place& place = places[i % places.size()];
    await(place.read);
    const Rows& rows = tiles_[uses[i].tile];
    const std::vector<Tensor> tensors = rows_in(place, rows);
    work(i, tensors);
    if (!in_file()) continue;
    place.written = file_->write(parts(rows, uses[i].writes, tensors));
    if (!options_.writes_behind) await(place.written);
  }
  for (const Place& place : places) await(place.written);
  return waited;
}

Tensor StateStore::read(size_t tile, size_t row, Interval elements) {
  const Row& of = tiles_[tile][row];
  if (of.resident) return of.resident.flat(elements.begin, elements.end);
  const Tensor values =
      Tensor::empty(*context_.memory, {elements.size()}, of.dtype, Category::workspace, context_.memory->host_pool());
  file_->read(of.offset + elements.begin * size_of(of.dtype), values).wait();
  return values;
}

}  // namespace nought
