// The part of ShardedOptimizer that makes an update beside the backward pass: segments whose gradients are final are
// updated while earlier Units' are still computed. Nothing global may stand before it (a norm that clips, a loss
// scale), so the bits are those of an update afterwards.
#include <algorithm>
#include <cmath>
#include <utility>

#include "nought/zero/sharded_optimizer.h"

namespace nought {

/// A Unit that another one reads, or another pipeline stage has, may be needed after its gradients are final here.
/// Parameters with another home than the device are brought and written by the rank's own thread.
bool ShardedOptimizer::may_be_early(const SegmentState& state) const {
  const Unit& unit = *units_[state.at.unit];
  const bool is_read = std::any_of(units_.begin(), units_.end(), [&](const auto& other) {
    return std::find(other->borrowed().begin(), other->borrowed().end(), &unit) != other->borrowed().end();
  });
  return !is_read && !unit.has_copy() && !unit.is_copy() && !state.is_directed() && !residency_.elsewhere(state.at);
}

void ShardedOptimizer::begin_early(double lr, double gradient_scale) {
  abandon_early();
  const bool pays = (offload_.tier.pool == Pool::file || by_host_) && (!by_host_ || offload_.ratio == 1);
  if (!offload_.early || !pays || delays() || pending_) return;
  std::vector<const SegmentState*> eligible;
  for (const SegmentState& state : states_)
    if (state.early) eligible.push_back(&state);
  if (eligible.empty()) return;
  make_worker();
  early_ = std::make_unique<Early>();
  early_->lr = lr, early_->gradient_scale = gradient_scale;
  early_->begun.assign(states_.size(), true);
  for (const SegmentState* state : eligible) early_->begun[static_cast<size_t>(state - states_.data())] = false;
  early_->square = Tensor::empty(*context_.memory, {1}, DType::f64, Category::workspace, context_.memory->host_pool());
  number_ = updates_ + 1;
  beside_ = Beside::backward;
  hold_rooms(plan_walk(eligible, {}));
  if (!by_host_) return;
  for (const SegmentState* state : eligible)
    if (!reads_gradients(*state) && !gradients_of(*state).on_host())
      store_->hold(StateStore::Room::gradients, reducer_.dtype());
}

void ShardedOptimizer::update_early() {
  if (!early_) return;
  for (size_t i = states_.size(); i-- > 0;) {
    if (early_->begun[i] || !reducer_.is_final(states_[i].at)) continue;
    early_->begun[i] = true;
    early_->updated.push_back(i);
    const SegmentState* const state = &states_[i];
    const auto walk = std::make_shared<Walk>(plan_walk(std::span(&state, 1), {}));
    const Event before = context_.stream->record();
    done_ = worker_->submit([this, walk, before, last = done_] {
      last.wait();  // throws what it threw
      if (early_->stopped) return;
      if (by_host_) store_->copies().follow(before);
      run(
          *walk, [&](const Tile& tile) { fetch_gradients(tile); }, [&](const Tile& tile) { update_early(tile); });
    });
  }
}

/// Nothing behind a gradient that is not finite is updated, so that what is looked for is found in what made it.
void ShardedOptimizer::update_early(const Tile& tile) const {
  for (const TrainedPiece& piece : tile.of->pieces) {
    if (early_->stopped) return;
    worker_context_.run(SumSquares{.x = gradient_of(tile, piece), .out = early_->square});
    if (!std::isfinite(*early_->square.data<double>())) {
      early_->stopped = true;
      return;
    }
    early_->changed = true;
    update_piece(tile, piece, early_->lr, early_->gradient_scale, {});
  }
}

std::vector<size_t> ShardedOptimizer::finish_early() {
  if (!early_) return {};
  wait_beside();
  release_rooms();
  beside_ = Beside::nothing;
  require(!early_->stopped, "an update was begun beside the backward pass from a gradient that is not finite");
  return std::exchange(early_, {})->updated;
}

bool ShardedOptimizer::abandon_early() {
  if (!early_) return false;
  wait_beside();
  release_rooms();
  beside_ = Beside::nothing;
  return std::exchange(early_, {})->changed;
}

}  // namespace nought
