// What StateTable keeps, between the form in which it is kept and f32: rounding, codes, loading, checkpoints, masters
// that others read and change.
#include <algorithm>

#include "nought/tensor/random.h"
#include "nought/zero/placement.h"
#include "nought/zero/state_table.h"

namespace nought {

void StateTable::narrow(const TrainedPiece& piece, StateKind kind, Interval stretch, const Tensor& x,
                        const Tensor& into) const {
  const Context& context = context_of(x);
  if (!options_.stochastic_rounding) return context.run(Cast{.x = x, .y = into});
  const uint64_t run = stable_hash(name_of(kind), options_.seed);
  const uint64_t key = stable_hash(piece.parameter->name, run + static_cast<uint64_t>(number_));
  const int64_t origin = piece.piece.in_parameter.begin;
  int64_t begin = 0;
  for (const Interval& global :
       global_elements(*piece.parameter, mesh_, {origin + stretch.begin, origin + stretch.end})) {
    const int64_t end = begin + global.size();
    context.run(
        RoundStochastic{.x = x.flat(begin, end), .y = into.flat(begin, end), .key = key, .first = global.begin});
    begin = end;
  }
}

void StateTable::encode(const TrainedPiece& piece, const StateValues& state, Interval stretch, const Tensor& x) const {
  const Tensor values = state.values.flat(stretch.begin, stretch.end);
  if (values.dtype() == DType::f32) return context_of(x).copy(x, values);
  if (!state.scales) return narrow(piece, state.kind, stretch, x, values);
  const int64_t block = options_.state_block;
  context_of(x).run(Quantize8{.x = x,
                              .codes = values,
                              .scales = state.scales.flat(stretch.begin / block, ceil_div(stretch.end, block)),
                              .block = block,
                              .is_signed = !is_square(state.kind)});
}

void StateTable::decode(const StateValues& state, Interval stretch, const Tensor& x) const {
  if (!state.scales) return context_of(x).run(Cast{.x = state.values.flat(stretch.begin, stretch.end), .y = x});
  const int64_t block = options_.state_block;
  context_of(x).run(Dequantize8{.codes = state.values.flat(stretch.begin, stretch.end),
                                .scales = state.scales.flat(stretch.begin / block, ceil_div(stretch.end, block)),
                                .x = x,
                                .block = block,
                                .is_signed = !is_square(state.kind)});
}

void StateTable::load(const StateSource& source) {
  for (const SegmentStates& state : states_) {
    begin_update(state, /*reads=*/false);  // what is all padding is written too
    walk(
        state, {.reads = 0}, [](const TileView&) {},
        [&](const TileView& tile) {
          for (const TrainedPiece& piece : tile.of->pieces) load(source, tile, piece);
        });
    residency_.end_update(state.at);
  }
}

void StateTable::load(const StateSource& source, const TileView& tile, const TrainedPiece& piece) const {
  const Tensor master = tile.master(piece);
  fill(context_of(master), source, StateKind::master, *piece.parameter,
       global_elements(*piece.parameter, mesh_, piece.piece.in_parameter), master);
  for (const PieceState& each : piece.states) load(source, piece, tile.at(each));
  if (!tile.of->keeps_masters) return;
  if (const Tensor copy = parameter_copy(tile, piece)) context_of(master).run(Cast{.x = master, .y = copy});
  send_parameter(tile, piece);
}

void StateTable::load(const StateSource& source, const TrainedPiece& piece, const StateValues& state) const {
  const Parameter& parameter = *piece.parameter;
  const Interval whole = piece.piece.in_parameter;
  if (!state.scales)
    return fill(context_of(state.values), source, state.kind, parameter, global_elements(parameter, mesh_, whole),
                state.values);
  const int64_t stride = round_up(kStretch, options_.state_block);
  for (int64_t begin = 0; begin < whole.size(); begin += stride) {
    const Interval stretch{begin, std::min(whole.size(), begin + stride)};
    const Tensor x = workspace(state.values, {stretch.size()}, DType::f32);
    fill(context_of(x), source, state.kind, parameter,
         global_elements(parameter, mesh_, {whole.begin + stretch.begin, whole.begin + stretch.end}), x);
    encode(piece, state, stretch, x);
  }
}

std::vector<StateTable::OwnedState> StateTable::owned(bool gradients) const {
  std::vector<OwnedState> owned;
  for (size_t segment = 0; segment < states_.size(); ++segment)
    for (size_t tile = 0; tile < states_[segment].tiles.size(); ++tile)
      for (size_t i = 0; i < states_[segment].tiles[tile].pieces.size(); ++i) {
        const TrainedPiece& piece = states_[segment].tiles[tile].pieces[i];
        if (piece.rank != states_[segment].ranks->rank() || !states_[segment].writes) continue;
        const auto add = [&](StateKind kind) {
          owned.push_back({piece.parameter, kind, piece.piece.in_parameter, segment, tile, i});
        };
        add(StateKind::master);
        for (const PieceState& state : piece.states) add(state.kind);
        if (gradients) add(StateKind::gradient);
      }
  return owned;
}

Tensor StateTable::values(const OwnedState& state) const {
  const SegmentStates& segment = states_[state.segment];
  const TrainedPiece& piece = segment.tiles[state.tile].pieces[state.piece];
  const size_t stored = segment.stored[state.tile];
  const auto in_f32 = [&](const Tensor& values) {
    if (values.dtype() == DType::f32) return values;
    const Tensor wide = workspace(values, values.shape(), DType::f32);
    context_of(values).run(Cast{.x = values, .y = wide});
    return wide;
  };
  if (state.kind == StateKind::master)
    return in_f32(segment.tiles[state.tile].keeps_masters ? store_->read(stored, 0, piece.in_masters)
                                                          : residency_.read(segment.at, piece.piece.in_segment));
  if (state.kind == StateKind::gradient) {
    return in_f32(segment.part(piece, segment.held));
  }
  const auto found = std::find_if(piece.states.begin(), piece.states.end(),
                                  [&](const PieceState& each) { return each.kind == state.kind; });
  const Tensor values = store_->read(stored, found->values, found->in_values);
  if (found->in_scales.empty()) return in_f32(values);
  const Tensor x = workspace(values, {state.in_parameter.size()}, DType::f32);
  decode({state.kind, values, store_->read(stored, found->scales, found->in_scales)}, {0, x.numel()}, x);
  return x;
}

const SegmentStates& StateTable::at(SegmentIndex at) const {
  const auto found = std::find_if(states_.begin(), states_.end(), [&](const auto& state) { return state.at == at; });
  require(found != states_.end(), "segment {} of unit {} is not trained: it has no masters", at.segment,
          units_[at.unit]->name());
  return *found;
}

void StateTable::read_masters(SegmentIndex at, const Tensor& owned) const {
  const SegmentStates& state = this->at(at);
  const Interval mine = residency_.partition(at).owned(state.ranks->rank());
  walk(
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

void StateTable::mix_masters(SegmentIndex at, const Tensor& scoped, double keeps) {
  const SegmentStates& state = this->at(at);
  walk(
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
          if (const Tensor copy = parameter_copy(tile, piece)) context_.run(Cast{.x = master, .y = copy});
          send_parameter(tile, piece);
        }
      });
}

}  // namespace nought
