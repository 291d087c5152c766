// The part of ShardedOptimizer that makes updates for RotatingServers: on the thread beside the passes, from gradients
// that others have pushed, to parameters that nobody reads yet. What it needs is what an update that is put off needs
// (delayed_update.cpp), for as long as the servers live.
#include <utility>

#include "nought/zero/placement.h"
#include "nought/zero/sharded_optimizer.h"

namespace nought {

void ShardedOptimizer::begin_serving() {
  require(!pending_ && table_.beside() == StateTable::Beside::nothing, "servers begin while an update is pending");
  for (const SegmentStates& state : table_.segments())
    require<ConfigError>(!state.is_directed(), "servers cannot update by Lamb or Muon: ranks would talk to each other");
  require<ConfigError>(!table_.by_host() && table_.offload().tier.pool == Pool::device,
                       "servers cannot update states that are offloaded");
  make_room_for_delay();
  for (const SegmentStates& state : table_.segments())
    context_.copy(residency_.read(state.at, state.scope), state.next);
  served_ =
      std::make_unique<StateTable::Walk>(table_.begin_beside(StateTable::Beside::step, worker_context_, table_.all()));
}

void ShardedOptimizer::end_serving() {
  if (!served_) return;
  served_.reset();
  table_.end_beside();
  drop_room_for_delay();
}

Event ShardedOptimizer::submit_beside(std::function<void()> work) { return worker_->submit(std::move(work)); }

Tensor ShardedOptimizer::held_gradients(SegmentIndex at) const { return table_.at(at).held; }

Tensor ShardedOptimizer::served_parameters(SegmentIndex at) const { return table_.at(at).next; }

void ShardedOptimizer::sum_held_squares(const Tensor& sums, const Tensor& room) const {
  const Context& context = worker_context_;
  context.zero(sums);
  for (const SegmentStates& state : table_.segments()) {
    const auto [begin, end] = state.counted;
    if (state.counted.empty()) continue;
    const auto unit = static_cast<int64_t>(state.at.unit);
    context.run(SumSquares{.x = state.held.flat(begin, end), .out = room});
    context.run(AddTo{.x = room, .into = sums.flat(unit, unit + 1)});
  }
}

void ShardedOptimizer::update_served(double lr, double gradient_scale) {
  table_.set_number(++updates_);
  table_.run(
      *served_, [](const TileView&) {},
      [&](const TileView& tile) {
        for (const TrainedPiece& piece : tile.of->pieces) update_piece(tile, piece, lr, gradient_scale, {});
      });
}

}  // namespace nought
