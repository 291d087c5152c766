#include "nought/zero/kept_states.h"

#include <algorithm>

#include "nought/zero/buckets.h"
#include "nought/zero/placement.h"

namespace nought {

void KeptStates::load(const StateSource& source) const {
  for (const SegmentStates& state : table_.segments()) {
    table_.begin_update(state, /*reads=*/false);  // what is all padding is written too
    table_.walk(
        state, {.reads = 0}, [](const TileView&) {},
        [&](const TileView& tile) {
          for (const TrainedPiece& piece : tile.of->pieces) load(source, tile, piece);
        });
    residency_.end_update(state.at);
  }
}

void KeptStates::load(const StateSource& source, const TileView& tile, const TrainedPiece& piece) const {
  const Tensor master = tile.master(piece);
  fill(table_.access().context_of(master), source, StateKind::master, *piece.parameter,
       global_elements(*piece.parameter, mesh_, piece.piece.in_parameter), master);
  for (const PieceState& each : piece.states) load(source, piece, tile.at(each));
  if (tile.of->keeps_masters) table_.access().write_parameter(tile, piece);
}

void KeptStates::load(const StateSource& source, const TrainedPiece& piece, const StateValues& state) const {
  const Parameter& parameter = *piece.parameter;
  const Interval whole = piece.piece.in_parameter;
  if (!state.scales)
    return fill(table_.access().context_of(state.values), source, state.kind, parameter,
                global_elements(parameter, mesh_, whole), state.values);
  const int64_t stride = table_.narrow().stretch();
  for (int64_t begin = 0; begin < whole.size(); begin += stride) {
    const Interval stretch{begin, std::min(whole.size(), begin + stride)};
    const Tensor x = table_.narrow().workspace(state.values, {stretch.size()}, DType::f32);
    fill(table_.access().context_of(x), source, state.kind, parameter,
         global_elements(parameter, mesh_, {whole.begin + stretch.begin, whole.begin + stretch.end}), x);
    table_.narrow().encode(table_.access().context_of(x), piece, state, stretch, x);
  }
}

std::vector<KeptStates::OwnedState> KeptStates::owned(bool gradients) const {
  const std::vector<SegmentStates>& segments = table_.segments();
  std::vector<OwnedState> owned;
  for (size_t segment = 0; segment < segments.size(); ++segment)
    for (size_t tile = 0; tile < segments[segment].tiles.size(); ++tile)
      for (size_t i = 0; i < segments[segment].tiles[tile].pieces.size(); ++i) {
        const TrainedPiece& piece = segments[segment].tiles[tile].pieces[i];
        if (piece.rank != segments[segment].ranks->rank() || !segments[segment].writes) continue;
        const auto add = [&](StateKind kind) {
          owned.push_back({piece.parameter, kind, piece.piece.in_parameter, segment, tile, i});
        };
        add(StateKind::master);
        for (const PieceState& state : piece.states) add(state.kind);
        if (gradients) add(StateKind::gradient);
      }
  return owned;
}

namespace {

/// Calls write(into) for values that are made of `from`; for those of a device that go to the host, on the way there.
template <class Write>
void write_to(const Context& by, const Tensor& from, const Tensor& into, const Write& write) {
  if (from.on_host() == into.on_host()) return write(into);
  const Tensor there = by.empty(into.shape(), into.dtype(), Category::workspace);
  write(there);
  by.copy(there, into);
}

/// Values that lie in memory.
KeptStates::Source source_in_memory(const Tensor& values) {
  using Place = KeptStates::Source::Place;
  return {.place = values.buffer()->pool() == Pool::device ? Place::device : Place::host,
          .held = values.dtype() == DType::f32 ? values : Tensor(),
          .read = [values](const Context& by, Interval elements, const Tensor& into) {
            const Tensor part = values.flat(elements.begin, elements.end);
            if (part.dtype() == into.dtype()) return by.copy(part, into);
            write_to(by, part, into, [&](const Tensor& to) { by.run(Cast{.x = part, .y = to}); });
          }};
}

}  // namespace

KeptStates::Source KeptStates::source_of_row(size_t stored, size_t row, Interval elements) const {
  const StateStore& store = table_.store();
  if (store.pool(stored, row) != Pool::file) return source_in_memory(store.read(stored, row, elements));
  return {.place = Source::Place::file,
          .passing = store.dtype(stored, row) != DType::f32,
          .read = [&store, stored, row, elements](const Context& by, Interval part, const Tensor& into) {
            const Interval in_row{elements.begin + part.begin, elements.begin + part.end};
            if (store.dtype(stored, row) == into.dtype()) return store.read(stored, row, in_row, into);
            copy_as(by, store.read(stored, row, in_row), into);
          }};
}

KeptStates::Source KeptStates::source_of(const SegmentStates& segment, size_t tile, const TrainedPiece& piece,
                                         StateKind kind) const {
  const size_t stored = segment.stored[tile];
  if (kind == StateKind::gradient) return source_in_memory(segment.part(piece, segment.held));
  if (kind == StateKind::master) {
    if (segment.tiles[tile].keeps_masters) return source_of_row(stored, 0, piece.in_masters);
    if (!residency_.elsewhere(segment.at)) return source_in_memory(residency_.read(segment.at, piece.piece.in_segment));
    return {.place = Source::Place::parameters,
            .passing = true,
            .read = [this, at = segment.at, origin = piece.piece.in_segment.begin](const Context& by, Interval part,
                                                                                   const Tensor& into) {
              copy_as(by, residency_.read(at, {origin + part.begin, origin + part.end}), into);
            }};
  }
  const auto found =
      std::find_if(piece.states.begin(), piece.states.end(), [&](const PieceState& each) { return each.kind == kind; });
  if (found->in_scales.empty()) return source_of_row(stored, found->values, found->in_values);
  Source source = source_of_row(stored, found->values, found->in_values);
  source.whole = true, source.held = {}, source.passing = source.place != Source::Place::device;
  source.read = [this, stored, state = *found](const Context& by, Interval elements, const Tensor& into) {
    const StateStore& store = table_.store();
    const StateValues codes{state.kind, store.read(stored, state.values, state.in_values),
                            store.read(stored, state.scales, state.in_scales)};
    write_to(by, codes.values, into, [&](const Tensor& to) { table_.narrow().decode(by, codes, elements, to); });
  };
  return source;
}

KeptStates::Source KeptStates::source(const OwnedState& state) const {
  const SegmentStates& segment = table_.segments()[state.segment];
  return source_of(segment, state.tile, segment.tiles[state.tile].pieces[state.piece], state.kind);
}

Tensor KeptStates::values(const OwnedState& state) const {
  const Source from = source(state);
  if (from.held) return from.held;
  const Interval all{0, state.in_parameter.size()};
  // What the host keeps of a device's states it widens itself.
  const bool on_host = from.place == Source::Place::host || from.place == Source::Place::file;
  const Pool pool = on_host ? context_.memory->host_pool() : Pool::device;
  const Tensor values = Tensor::empty(*context_.memory, {all.size()}, DType::f32, Category::workspace, pool);
  from.read(table_.access().context_of(values), all, values);
  return values;
}

void KeptStates::read_masters(SegmentIndex at, const Tensor& owned) const {
  const SegmentStates& state = table_.at(at);
  const Interval mine = residency_.partition(at).owned(state.ranks->rank());
  table_.walk(
      state, {.writes = 0}, [](const TileView&) {},
      [&](const TileView& tile) {
        for (const TrainedPiece& piece : tile.of->pieces) {
          if (piece.rank != state.ranks->rank()) continue;
          const Interval where = piece.piece.in_segment;
          const Tensor master = tile.of->keeps_masters ? tile.master(piece) : residency_.read(at, where);
          copy_as(context_, master, owned.flat(where.begin - mine.begin, where.end - mine.begin));
        }
      });
}

void KeptStates::mix_masters(SegmentIndex at, const Tensor& scoped, double keeps) const {
  const SegmentStates& state = table_.at(at);
  table_.walk(
      state, {}, [](const TileView&) {},
      [&](const TileView& tile) {
        for (const TrainedPiece& piece : tile.of->pieces) {
          const Tensor master = tile.master(piece), from = state.part(piece, scoped);
          require(master.dtype() == DType::f32, "masters of {} that are mixed with others are fp32, not {}",
                  piece.parameter->name, name_of(master.dtype()));
          if (keeps == 0) {
            context_.copy(from, master);
          } else {
            context_.run(ApplyDirection{.parameter = master, .direction = from, .step = keeps - 1, .keep = keeps});
          }
          if (!tile.of->keeps_masters) continue;
          if (const Tensor copy = table_.access().parameter_copy(tile, piece))
            context_.run(Cast{.x = master, .y = copy});
          table_.access().send_parameter(tile, piece);
        }
      });
}

}  // namespace nought
