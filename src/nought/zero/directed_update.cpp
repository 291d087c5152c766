// The second half of ShardedOptimizer's update where an optimizer gives a direction first: Lamb and Muon.
#include "nought/comm/flight_recorder.h"
#include "nought/zero/orthogonalize.h"
#include "nought/zero/placement.h"
#include "nought/zero/sharded_optimizer.h"

namespace nought {

namespace {

/// The part of the sums that is of the piece's parameter: of squares of its elements, and of its direction's.
Tensor sums_of(const TrainedPiece& piece, const Tensor& sums) {
  const int64_t at = 2 * static_cast<int64_t>(piece.place);
  return sums.flat(at, at + 2);
}

}  // namespace

ShardedOptimizer::Squares ShardedOptimizer::make_squares(const SegmentState& state) const {
  const Shape shape{static_cast<int64_t>(2 * state.parameters.size())};
  const Tensor zeros = context_.zeros(shape, DType::f64, Category::workspace);
  return {zeros, by_host_ ? Tensor::zeros(*local_.memory, shape, DType::f64, Category::workspace, Pool::host) : zeros};
}

void ShardedOptimizer::add_squares(const Tile& tile, const TrainedPiece& piece, const Tensor& directions,
                                   const Squares& sums) const {
  if (piece.rank != tile.state.ranks->rank()) return;
  const Tensor direction = local(tile, piece, StateStore::Room::directions, directions);
  const Tensor mine = sums_of(piece, transfers(tile) ? sums.on_host : sums.on_device);
  context_of(mine).run(SumSquares{.x = tile.master(piece), .out = mine.flat(0, 1)});
  context_of(mine).run(SumSquares{.x = direction, .out = mine.flat(1, 2)});
}

/// The ranks' sums over what they own are added in rank order, at every stage, and then those of the ranks that hold
/// other parts of the parameters.
ShardedOptimizer::Squares ShardedOptimizer::sum_squares(const SegmentState& state, const Squares& mine) const {
  const FlightSubject subject(mesh_.world(), units_[state.at.unit]->name());
  std::vector<Communicator*> groups{state.ranks};
  for (const Axis axis : {Axis::tensor, Axis::expert_tensor, Axis::expert})
    if (units_[state.at.unit]->segments()[state.at.segment].cut_along.has(axis))
      groups.push_back(&ranks_along(axis, mesh_));
  const Tensor& sums = mine.on_device;
  if (by_host_) context_.run(AddTo{.x = context_.on_device(mine.on_host), .into = sums});  // each sum is in one
  for (Communicator* group : groups)
    if (group->size() > 1) group->wait(group->all_reduce(sums), *context_.stream);
  return {sums, by_host_ ? context_.on_host(sums) : sums};
}

/// p -= lr * trust ratio * direction, where the ratio is of norms over the whole parameter.
void ShardedOptimizer::apply_lamb(const SegmentState& state, const Tensor& directions, const Squares& sums,
                                  double lr) const {
  const auto& lamb = std::get<LambOptions>(options_.method);
  apply(state, directions, [&](const Tile& tile, const TrainedPiece& piece) {
    return ApplyDirection{.parameter = {},
                          .direction = {},
                          .squares = sums_of(piece, transfers(tile) ? sums.on_host : sums.on_device),
                          .step = lr * piece.rule.lr_scale,
                          .least_ratio = lamb.min_coeff,
                          .greatest_ratio = lamb.max_coeff};
  });
}

/// Gathers the segment's directions, orthogonalises each matrix on one rank, and sends it to all; then every rank
/// applies what lies in its scope.
void ShardedOptimizer::apply_muon(const SegmentState& state, const Tensor& directions, const Tensor& whole,
                                  double lr) const {
  const auto& muon = std::get<MuonOptions>(options_.method);
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
  apply(state, directions, [&](const Tile&, const TrainedPiece& piece) {
    const double step = lr * piece.rule.lr_scale;
    return ApplyDirection{.parameter = {}, .direction = {}, .step = step, .keep = 1 - step * piece.rule.weight_decay};
  });
}

void ShardedOptimizer::apply(const SegmentState& state, const Tensor& directions,
                             const std::function<ApplyDirection(const Tile&, const TrainedPiece&)>& make) const {
  const bool kept =
      std::any_of(state.tiles.begin(), state.tiles.end(), [](const StateTile& tile) { return tile.keeps_masters; });
  const RowSet masters = kept ? 1 : 0;  // of a file; its tiles keep masters if any does
  const auto for_directed = [](const Tile& tile, const auto& f) {
    for (const TrainedPiece& piece : tile.of->pieces)
      if (gives_direction(piece.rule.method)) f(piece);
  };
  walk(
      state, {masters, masters},
      [&](const Tile& tile) {
        StateStore* const moved = transfers(tile);
        if (!moved) return;
        for_directed(tile, [&](const TrainedPiece& piece) {
          moved->down(tile.state.part(piece, directions), local(tile, piece, StateStore::Room::directions, directions),
                      tile.place);
        });
      },
      [&](const Tile& tile) {
        for_directed(tile, [&](const TrainedPiece& piece) {
          UpdateSpan span;
          span.parameter = tile.master(piece), span.parameter_copy = parameter_copy(tile, piece);
          const Tensor direction = local(tile, piece, StateStore::Room::directions, directions);
          ApplyDirection op = make(tile, piece);
          in_f32(tile, piece, span, [&](const UpdateSpan& stretch, Interval where) {
            op.parameter = stretch.parameter;
            op.direction = direction.flat(where.begin, where.end);
            op.parameter_copy = stretch.parameter_copy;
            context_of(op.parameter).run(op);
          });
          send_parameter(tile, piece);
        });
      });
}

}  // namespace nought
