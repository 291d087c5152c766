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

void ShardedOptimizer::add_squares(const Tile& tile, const TrainedPiece& piece, const Tensor& directions,
                                   const Tensor& sums) const {
  if (piece.rank != tile.state.ranks->rank()) return;
  const Tensor direction = local(tile, piece, UpdateTransfers::Room::directions, directions);
  local_.run(SumSquares{.x = tile.master(piece), .out = sums_of(piece, sums).flat(0, 1)});
  local_.run(SumSquares{.x = direction, .out = sums_of(piece, sums).flat(1, 2)});
}

/// The ranks' sums over what they own are added in rank order, at every stage, and then those of the ranks that hold
/// other parts of the parameters.
Tensor ShardedOptimizer::sum_squares(const SegmentState& state, const Tensor& mine) const {
  const FlightSubject subject(mesh_.world(), units_[state.at.unit]->name());
  std::vector<Communicator*> groups{state.ranks};
  for (const Axis axis : {Axis::tensor, Axis::expert_tensor, Axis::expert})
    if (units_[state.at.unit]->segments()[state.at.segment].cut_along.has(axis))
      groups.push_back(&ranks_along(axis, mesh_));
  const Tensor sums = context_.on_device(mine);
  for (Communicator* group : groups)
    if (group->size() > 1) group->wait(group->all_reduce(sums), *context_.stream);
  return transfers_ ? context_.on_host(sums) : sums;
}

/// p -= lr * trust ratio * direction, where the ratio is of norms over the whole parameter.
void ShardedOptimizer::apply_lamb(const SegmentState& state, const Tensor& directions, const Tensor& sums,
                                  double lr) const {
  const auto& lamb = std::get<LambOptions>(options_.method);
  apply(state, directions, [&](const TrainedPiece& piece) {
    return ApplyDirection{.parameter = {},
                          .direction = {},
                          .squares = sums_of(piece, sums),
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
  apply(state, directions, [&](const TrainedPiece& piece) {
    const double step = lr * piece.rule.lr_scale;
    return ApplyDirection{.parameter = {}, .direction = {}, .step = step, .keep = 1 - step * piece.rule.weight_decay};
  });
}

void ShardedOptimizer::apply(const SegmentState& state, const Tensor& directions,
                             const std::function<ApplyDirection(const TrainedPiece&)>& make) const {
  const RowSet masters = state.keeps_masters ? 1 : 0;
  const auto for_directed = [](const Tile& tile, const auto& f) {
    for (const TrainedPiece& piece : tile.of->pieces)
      if (gives_direction(piece.rule.method)) f(piece);
  };
  walk(
      state, {masters, masters},
      [&](const Tile& tile) {
        if (!transfers_) return;
        for_directed(tile, [&](const TrainedPiece& piece) {
          transfers_->down(tile.state.part(piece, directions),
                           local(tile, piece, UpdateTransfers::Room::directions, directions), tile.place);
        });
      },
      [&](const Tile& tile) {
        for_directed(tile, [&](const TrainedPiece& piece) {
          UpdateSpan span;
          span.parameter = tile.master(piece), span.parameter_copy = parameter_copy(tile, piece);
          const Tensor direction = local(tile, piece, UpdateTransfers::Room::directions, directions);
          ApplyDirection op = make(piece);
          in_f32(tile, piece, span, [&](const UpdateSpan& stretch, Interval where) {
            op.parameter = stretch.parameter;
            op.direction = direction.flat(where.begin, where.end);
            op.parameter_copy = stretch.parameter_copy;
            local_.run(op);
          });
          send_parameter(tile, piece);
        });
      });
}

}  // namespace nought
