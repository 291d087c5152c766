#include "nought/zero/kept_states.h"

#include <algorithm>

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

Tensor KeptStates::values(const OwnedState& state) const {
  const SegmentStates& segment = table_.segments()[state.segment];
  const TrainedPiece& piece = segment.tiles[state.tile].pieces[state.piece];
  const size_t stored = segment.stored[state.tile];
  const auto in_f32 = [&](const Tensor& values) {
    if (values.dtype() == DType::f32) return values;
    const Tensor wide = table_.narrow().workspace(values, values.shape(), DType::f32);
    table_.access().context_of(values).run(Cast{.x = values, .y = wide});
    return wide;
  };
  if (state.kind == StateKind::master)
    return in_f32(segment.tiles[state.tile].keeps_masters ? table_.store().read(stored, 0, piece.in_masters)
                                                          : residency_.read(segment.at, piece.piece.in_segment));
  if (state.kind == StateKind::gradient) {
    return in_f32(segment.part(piece, segment.held));
  }
  const auto found = std::find_if(piece.states.begin(), piece.states.end(),
                                  [&](const PieceState& each) { return each.kind == state.kind; });
  const Tensor values = table_.store().read(stored, found->values, found->in_values);
  if (found->in_scales.empty()) return in_f32(values);
  const Tensor x = table_.narrow().workspace(values, {state.in_parameter.size()}, DType::f32);
  table_.narrow().decode(table_.access().context_of(x),
                         {state.kind, values, table_.store().read(stored, found->scales, found->in_scales)},
                         {0, x.numel()}, x);
  return x;
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
