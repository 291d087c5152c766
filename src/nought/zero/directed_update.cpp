#include "nought/zero/directed_update.h"

#include "nought/comm/flight_recorder.h"
#include "nought/zero/orthogonalize.h"
#include "nought/zero/placement.h"

namespace nought {

namespace {

/// The part of the sums that is of the piece's parameter: of squares of its elements, and of its direction's.
Tensor sums_of(const TrainedPiece& piece, const Tensor& sums) {
  const int64_t at = 2 * static_cast<int64_t>(piece.place);
  return sums.flat(at, at + 2);
}

}  // namespace

void DirectedUpdate::update(const SegmentStates& state, double lr, const Form& form) {
  const bool muon = std::holds_alternative<MuonOptions>(method_);
  const Interval room = muon ? Interval{0, residency_.partition(state.at).padded()} : state.scope;
  const Tensor whole = context_.empty({room.size()}, DType::f32, Category::workspace);
  const Tensor directions = whole.flat(state.scope.begin - room.begin, state.scope.end - room.begin);
  table_.begin_update(state, /*reads=*/true);  // over both walks
  const Squares sums = muon ? Squares{} : make_squares(state);
  table_.walk(
      state, {}, [&](const TileView& tile) { table_.access().fetch_gradients(tile); },
      [&](const TileView& tile) {
        for (const TrainedPiece& piece : tile.of->pieces) {
          form(tile, piece, directions);
          if (!muon) add_squares(tile, piece, directions, sums);
        }
      });
  if (muon) {
    apply_muon(state, directions, whole, lr);
  } else {
    apply_lamb(state, directions, sum_squares(state, sums), lr);
  }
  residency_.end_update(state.at);
}

DirectedUpdate::Squares DirectedUpdate::make_squares(const SegmentStates& state) const {
  const Shape shape{static_cast<int64_t>(2 * state.parameters.size())};
  const Tensor zeros = context_.zeros(shape, DType::f64, Category::workspace);
  return {zeros, table_.by_host() ? Tensor::zeros(*context_.memory, shape, DType::f64, Category::workspace, Pool::host)
                                  : zeros};
}

void DirectedUpdate::add_squares(const TileView& tile, const TrainedPiece& piece, const Tensor& directions,
                                 const Squares& sums) const {
  if (piece.rank != tile.state.ranks->rank()) return;
  const Tensor direction = table_.access().local(tile, piece, StateStore::Room::directions, directions);
  const Tensor mine = sums_of(piece, table_.access().transfers(tile) ? sums.on_host : sums.on_device);
  table_.access().context_of(mine).run(SumSquares{.x = tile.master(piece), .out = mine.flat(0, 1)});
  table_.access().context_of(mine).run(SumSquares{.x = direction, .out = mine.flat(1, 2)});
}

/// The ranks' sums over what they own are added in rank order, at every stage, and then those of the ranks that hold
/// other parts of the parameters.
DirectedUpdate::Squares DirectedUpdate::sum_squares(const SegmentStates& state, const Squares& mine) const {
  const FlightSubject subject(mesh_.world(), units_[state.at.unit]->name());
  std::vector<Communicator*> groups{state.ranks};
  for (const Axis axis : {Axis::tensor, Axis::expert_tensor, Axis::expert})
    if (units_[state.at.unit]->segments()[state.at.segment].cut_along.has(axis))
      groups.push_back(&ranks_along(axis, mesh_));
  const Tensor& sums = mine.on_device;
  if (table_.by_host()) context_.run(AddTo{.x = context_.on_device(mine.on_host), .into = sums});  // each sum is in one
  for (Communicator* group : groups)
    if (group->size() > 1) group->wait(group->all_reduce(sums), *context_.stream);
  return {sums, table_.by_host() ? context_.on_host(sums) : sums};
}

/// p -= lr * trust ratio * direction, where the ratio is of norms over the whole parameter.
void DirectedUpdate::apply_lamb(const SegmentStates& state, const Tensor& directions, const Squares& sums,
                                double lr) const {
  const auto& lamb = std::get<LambOptions>(method_);
  apply(state, directions, [&](const TileView& tile, const TrainedPiece& piece) {
    return ApplyDirection{.parameter = {},
                          .direction = {},
                          .squares = sums_of(piece, table_.access().transfers(tile) ? sums.on_host : sums.on_device),
                          .step = lr * piece.rule.lr_scale,
                          .least_ratio = lamb.min_coeff,
                          .greatest_ratio = lamb.max_coeff};
  });
}

/// Gathers the segment's directions, orthogonalises each matrix on one rank, and sends it to all; then every rank
/// applies what lies in its scope.
void DirectedUpdate::apply_muon(const SegmentStates& state, const Tensor& directions, const Tensor& whole,
                                double lr) const {
  const auto& muon = std::get<MuonOptions>(method_);
  Communicator& ranks = *state.ranks;
  const FlightSubject subject(mesh_.world(), units_[state.at.unit]->name());
  if (residency_.policy(state.at).shard_optimizer) ranks.wait(ranks.all_gather(directions, whole), *context_.stream);
  std::vector<DirectionPart> parts;
  for (size_t i = 0; i < state.parameters.size(); ++i) {
    const Interval range = state.parameters[i]->range;
    if (gives_direction(state.rules[i].method))
      parts.push_back({state.parameters[i], whole.flat(range.begin, range.end)});
  }
  orthogonalize_parts(context_, mesh_, ranks, muon, parts, state.at.unit);
  apply(state, directions, [&](const TileView&, const TrainedPiece& piece) {
    const double step = lr * piece.rule.lr_scale;
    return ApplyDirection{.parameter = {}, .direction = {}, .step = step, .keep = 1 - step * piece.rule.weight_decay};
  });
}

void DirectedUpdate::apply(const SegmentStates& state, const Tensor& directions,
                           const std::function<ApplyDirection(const TileView&, const TrainedPiece&)>& make) const {
  const bool kept =
      std::any_of(state.tiles.begin(), state.tiles.end(), [](const StateTile& tile) { return tile.keeps_masters; });
  const StateTable::RowSet masters = kept ? 1 : 0;  // of a file; its tiles keep masters if any does
  const auto for_directed = [](const TileView& tile, const auto& f) {
    for (const TrainedPiece& piece : tile.of->pieces)
      if (gives_direction(piece.rule.method)) f(piece);
  };
  table_.walk(
      state, {masters, masters},
      [&](const TileView& tile) {
        StateStore* const moved = table_.access().transfers(tile);
        if (!moved) return;
        for_directed(tile, [&](const TrainedPiece& piece) {
          moved->down(tile.state.part(piece, directions),
                      table_.access().local(tile, piece, StateStore::Room::directions, directions), tile.place);
        });
      },
      [&](const TileView& tile) {
        for_directed(tile, [&](const TrainedPiece& piece) {
          UpdateSpan span;
          span.parameter = tile.master(piece), span.parameter_copy = table_.access().parameter_copy(tile, piece);
          const Tensor direction = table_.access().local(tile, piece, StateStore::Room::directions, directions);
          ApplyDirection op = make(tile, piece);
          const Context& context = table_.access().context_of(span.parameter);
          table_.narrow().in_f32(context, tile, piece, span, [&](const UpdateSpan& stretch, Interval where) {
            op.parameter = stretch.parameter;
            op.direction = direction.flat(where.begin, where.end);
            op.parameter_copy = stretch.parameter_copy;
            context.run(op);
          });
          table_.access().send_parameter(tile, piece);
        });
      });
}

}  // namespace nought
