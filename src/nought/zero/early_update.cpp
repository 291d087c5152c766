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
bool ShardedOptimizer::may_be_early(const SegmentStates& state) const {
  const Unit& unit = *units_[state.at.unit];
  const bool is_read = std::any_of(units_.begin(), units_.end(), [&](const auto& other) {
    return std::find(other->borrowed().begin(), other->borrowed().end(), &unit) != other->borrowed().end();
  });
  return !is_read && !unit.has_copy() && !unit.is_copy() && !state.is_directed() && !residency_.elsewhere(state.at);
}

void ShardedOptimizer::begin_early(double lr, double gradient_scale) {
  abandon_early();
  const OffloadOptions& offload = table_.offload();
  const bool by_host = table_.by_host(),
             pays = (offload.tier.pool == Pool::file || by_host) && (!by_host || offload.ratio == 1);
  if (!offload.early || !pays || delays() || pending_) return;
  std::vector<const SegmentStates*> eligible;
  for (const SegmentStates& state : table_.segments())
    if (state.early) eligible.push_back(&state);
  if (eligible.empty()) return;
  make_worker();
  early_ = std::make_unique<Early>();
  early_->lr = lr, early_->gradient_scale = gradient_scale;
  early_->begun.assign(table_.segments().size(), true);
  for (const SegmentStates* state : eligible)
    early_->begun[static_cast<size_t>(state - table_.segments().data())] = false;
  early_->square = Tensor::empty(*context_.memory, {1}, DType::f64, Category::workspace, context_.memory->host_pool());
  table_.set_number(updates_ + 1);
  table_.begin_beside(StateTable::Beside::backward, worker_context_, eligible);
}

void ShardedOptimizer::update_early() {
  if (!early_) return;
  for (size_t i = table_.segments().size(); i-- > 0;) {
    if (early_->begun[i] || !reducer_.is_final(table_.segments()[i].at)) continue;
    early_->begun[i] = true;
    early_->updated.push_back(i);
    const SegmentStates* const state = &table_.segments()[i];
    const auto walk = std::make_shared<StateTable::Walk>(table_.plan_walk(std::span(&state, 1), {}));
    const Event before = context_.stream->record();
    done_ = worker_->submit([this, walk, before, last = done_] {
      last.wait();  // throws what it threw
      if (early_->stopped) return;
      if (table_.by_host()) table_.store().copies().follow(before);
      table_.run(
          *walk, [&](const TileView& tile) { table_.fetch_gradients(tile); },
          [&](const TileView& tile) { update_early(tile); });
    });
  }
}

/// Nothing behind a gradient that is not finite is updated, so that what is looked for is found in what made it.
void ShardedOptimizer::update_early(const TileView& tile) const {
  for (const TrainedPiece& piece : tile.of->pieces) {
    if (early_->stopped) return;
    worker_context_.run(SumSquares{.x = table_.gradient_of(tile, piece), .out = early_->square});
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
  table_.end_beside();
  require(!early_->stopped, "an update was begun beside the backward pass from a gradient that is not finite");
  return std::exchange(early_, {})->updated;
}

bool ShardedOptimizer::abandon_early() {
  if (!early_) return false;
  wait_beside();
  table_.end_beside();
  return std::exchange(early_, {})->changed;
}

}  // namespace nought
