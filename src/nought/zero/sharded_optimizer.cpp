#include "nought/zero/sharded_optimizer.h"

#include <algorithm>

namespace nought {

ShardedOptimizer::ShardedOptimizer(const Context& context, const Mesh& mesh, DType dtype, OptimizerOptions options,
                                   const std::vector<std::unique_ptr<Unit>>& units, Residency& residency,
                                   Reducer& reducer, const OffloadOptions& offload, int virtual_ranks)
    : context_(context),
      mesh_(mesh),
      options_(std::move(options)),
      units_(units),
      virtual_ranks_(virtual_ranks),
      reducer_(reducer),
      table_(context, mesh, dtype, options_, units, residency, reducer, offload),
      kept_(context, mesh, residency, table_),
      directed_(context, mesh, options_.method, units, residency, table_),
      compressed_(CompressedUpdate::make(context, options_, table_.segments(), units, residency, reducer)),
      lane_(context, mesh, residency, reducer, table_,
            [this](const TileView& tile, const TrainedPiece& piece, double lr, double gradient_scale) {
              update_piece(tile, piece, lr, gradient_scale, {});
            }) {}

Tensor ShardedOptimizer::squares_of_virtual_ranks() const {
  const auto units = static_cast<int64_t>(units_.size());
  const Tensor room = context_.empty({1}, DType::f64, Category::workspace);
  const Tensor sums = context_.zeros({units * virtual_ranks_}, DType::f64, Category::workspace);
  for (const SegmentStates& state : table_.segments()) {
    const Partition& partition = reducer_.partition(state.at);
    const std::optional<size_t> number = reducer_.stored(state.at);
    const Tensor stored = number ? context_.on_device(reducer_.store()->square(*number)) : Tensor();
    const int64_t first =
        static_cast<int64_t>(state.at.unit) * virtual_ranks_ + state.ranks->rank() * partition.virtual_shards();
    for (int64_t shard = 0, known = 0; shard < partition.virtual_shards(); ++shard) {
      const auto [begin, end] = intersect(state.counted, partition.virtual_shard(static_cast<int>(shard)));
      if (begin >= end) continue;
      Tensor square = room;
      if (number) {
        square = stored.flat(known, known + 1), ++known;
      } else {
        context_.run(SumSquares{.x = reducer_.owned(state.at).flat(begin, end), .out = room});
      }
      context_.run(AddTo{.x = square, .into = sums.flat(first + shard, first + shard + 1)});
    }
  }
  return sums;
}

Tensor ShardedOptimizer::sums_of_squares() const {
  if (virtual_ranks_ > 0) return squares_of_virtual_ranks();
  const Tensor room = context_.empty({1}, DType::f64, Category::workspace);
  const Tensor sums = context_.empty({static_cast<int64_t>(units_.size())}, DType::f64, Category::workspace);
  const bool own = wants_local_gradients();
  sum_squares(context_, table_.segments(), sums, room, [&](const SegmentStates& state, const Tensor& sum) {
    const auto [begin, end] = state.counted;
    if (own) {
      compressed_->own_squares(state, sum);
    } else if (const std::optional<size_t> number = reducer_.stored(state.at); number && begin < end) {
      context_.copy(reducer_.store()->square(*number), sum);
    } else if (begin < end) {
      context_.run(SumSquares{.x = reducer_.owned(state.at).flat(begin, end), .out = sum});
    }
    return own || begin < end;
  });
  return sums;
}

UpdateSpan ShardedOptimizer::span_of(const TileView& tile, const TrainedPiece& piece, double lr,
                                     double gradient_scale) const {
  UpdateSpan span{.parameter = tile.master(piece),
                  .gradient = table_.access().gradient_of(tile, piece),
                  .parameter_copy = table_.access().parameter_copy(tile, piece),
                  .states = {},
                  .lr = lr * piece.rule.lr_scale,
                  .weight_decay = piece.rule.weight_decay,
                  .gradient_scale = gradient_scale,
                  .step = table_.number()};
  for (const PieceState& each : piece.states) span.states.push_back(tile.values(each));
  return span;
}

std::vector<RankLocalTensor> ShardedOptimizer::rank_local_tensors() const {
  if (!compressed_) return {};
  return compressed_->rank_local_tensors(updates_, [this](const SegmentStates& state, const TileWork& work) {
    table_.walk(
        state, {.writes = 0}, [](const TileView&) {}, work);
  });
}

void ShardedOptimizer::update(double lr, double gradient_scale) {
  const std::vector<size_t> early = lane_.finish_early(lr, gradient_scale);
  table_.set_number(++updates_);
  const auto all = [this](const TileWork& work) {
    table_.walk(
        table_.all(), {}, [](const TileView&) {}, work);
  };
  if (compressed_ && compressed_->update(updates_, lr, gradient_scale, all)) return;
  std::vector<const SegmentStates*> elementwise;
  for (size_t i = 0; i < table_.segments().size(); ++i)
    if (!table_.segments()[i].is_directed() && std::find(early.begin(), early.end(), i) == early.end())
      elementwise.push_back(&table_.segments()[i]);
  table_.walk(
      elementwise, {}, [&](const TileView& tile) { table_.access().fetch_gradients(tile); },
      [&](const TileView& tile) {
        for (const TrainedPiece& piece : tile.of->pieces) update_piece(tile, piece, lr, gradient_scale, {});
      });
  for (const SegmentStates& state : table_.segments())
    if (state.is_directed())
      directed_.update(state, lr, [&](const TileView& tile, const TrainedPiece& piece, const Tensor& directions) {
        update_piece(tile, piece, lr, gradient_scale, directions);
      });
}

void ShardedOptimizer::update_piece(const TileView& tile, const TrainedPiece& piece, double lr, double gradient_scale,
                                    const Tensor& directions) const {
  const Method method = options_.momentum_cycle
                            ? with_betas(piece.rule.method, cycled_betas(*options_.momentum_cycle, table_.number() - 1))
                            : piece.rule.method;
  const UpdateSpan span = span_of(tile, piece, lr, gradient_scale);
  const Context& context = table_.access().context_of(span.parameter);
  if (!gives_direction(method)) {
    table_.narrow().in_f32(context, tile, piece, span,
                           [&](const UpdateSpan& stretch, Interval) { update_by(method, context, stretch); });
    return table_.access().send_parameter(tile, piece);
  }
  const Tensor direction = table_.access().local(tile, piece, StateStore::Room::directions, directions);
  table_.narrow().in_f32(context, tile, piece, span, [&](const UpdateSpan& stretch, Interval where) {
    direction_by(method, context, stretch, direction.flat(where.begin, where.end));
  });
  if (StateStore* moved = table_.access().transfers(tile))
    moved->up(direction, tile.state.part(piece, directions), tile.place);
}

}  // namespace nought
