// The part of ShardedOptimizer that lets others read and change its masters between updates, as local steps do when
// workers meet. Optimizer states are left alone.
#include <algorithm>

#include "nought/zero/placement.h"
#include "nought/zero/sharded_optimizer.h"

namespace nought {

const ShardedOptimizer::SegmentState& ShardedOptimizer::state_of(SegmentIndex at) const {
  const auto found = std::find_if(states_.begin(), states_.end(), [&](const auto& state) { return state.at == at; });
  require(found != states_.end(), "segment {} of unit {} is not trained: it has no masters", at.segment,
          units_[at.unit]->name());
  return *found;
}

void ShardedOptimizer::read_masters(SegmentIndex at, const Tensor& owned) const {
  const SegmentState& state = state_of(at);
  const Interval mine = residency_.partition(at).owned(state.ranks->rank());
  walk(
      state, {.writes = 0}, [](const Tile&) {},
      [&](const Tile& tile) {
        for (const TrainedPiece& piece : tile.of->pieces) {
          if (piece.rank != state.ranks->rank()) continue;
          const Interval where = piece.piece.in_segment;
          const Tensor master = tile.of->keeps_masters ? tile.master(piece) : residency_.read(at, where);
          copy_as(context_, master, owned.flat(where.begin - mine.begin, where.end - mine.begin));
        }
      });
}

void ShardedOptimizer::mix_masters(SegmentIndex at, const Tensor& scoped, double keeps) {
  require(!pending_, "masters are changed while an update of them is pending");
  const SegmentState& state = state_of(at);
  walk(
      state, {}, [](const Tile&) {},
      [&](const Tile& tile) {
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
