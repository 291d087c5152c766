// The part of ShardedOptimizer that puts an update off by one step: theta(t + 1) = theta(t) - A(g(theta(t - 1))), and
// computes it beside the passes of the step between (ZeRO-Offload's one-step delayed parameter update).
//
// Between two steps an update is pending, but nothing of it has begun: masters and states are those of before, and its
// gradients lie beside them. So a checkpoint holds it as it is, and saving changes nothing.
#include <algorithm>
#include <utility>

#include "nought/base/timing.h"
#include "nought/offload/host_context.h"
#include "nought/zero/placement.h"
#include "nought/zero/sharded_optimizer.h"

namespace nought {

void ShardedOptimizer::prepare_delay() {
  for (const SegmentStates& state : table_.segments())
    require<ConfigError>(!state.is_directed(),
                         "an update of Lamb or Muon cannot be put off: it needs norms or matrices of whole parameters, "
                         "for which ranks talk to each other; use another optimizer, or switch "
                         "training.delayed_update off");
  require<ConfigError>(!table_.by_host() || table_.offload().ratio == 1,
                       "an update of states of which a part stays on the device (ratio {}) cannot be put off: set "
                       "offload_optimizer.ratio to 1, or switch training.delayed_update off",
                       table_.offload().ratio);
  make_room_for_delay();
}

void ShardedOptimizer::make_worker() {
  if (worker_) return;
  const bool on_device = !table_.by_host() && !context_.memory->device().is_host();
  worker_context_ = host_context(context_);
  if (on_device) worker_context_ = {context_.memory, context_.kernels, context_.memory->device().make_stream("update")};
  const bool is_thread = !on_device && !context_.memory->is_virtual();
  worker_ = std::make_unique<Stream>(is_thread ? Stream::Kind::worker : Stream::Kind::run_inline, "update");
  // The cores of a device that is the host are at work; beside another one they are free.
  if (is_thread && !table_.by_host()) worker_->submit(use_one_openmp_thread);
}

void ShardedOptimizer::wait_beside() {
  waited_ += seconds_of([&] { std::exchange(done_, {}).wait(); });
  context_.stream->wait(worker_context_.stream->record());
}

void ShardedOptimizer::make_room_for_delay() {
  make_worker();
  for (SegmentStates& state : table_.segments()) {
    if (state.held) continue;
    const DType dtype = reducer_.dtype();
    const Shape shape{state.scope.size()};
    state.held = table_.by_host() ? Tensor::zeros(*context_.memory, shape, dtype, Category::gradients, Pool::host)
                                  : context_.zeros(shape, dtype, Category::gradients);
    state.next = context_.zeros(shape, residency_.dtype(state.at), Category::parameters);
  }
}

void ShardedOptimizer::drop_room_for_delay() {
  for (SegmentStates& state : table_.segments()) state.held = state.next = {};
}

void ShardedOptimizer::delay(double lr, double gradient_scale) {
  require(!pending_, "an update is put off while another one is pending");
  for (const SegmentStates& state : table_.segments()) {
    const Tensor gradients = reducer_.reduced(state.at);
    if (table_.by_host() && gradients.on_host()) {
      table_.context_of(gradients).copy(gradients, state.held);
    } else if (table_.by_host()) {
      arrived_ = table_.store().copies().down(gradients, state.held, {context_.stream->record()});
    } else {
      context_.copy(gradients, state.held);
    }
  }
  if (table_.by_host()) reducer_.keep_until(arrived_);
  pending_ = {lr, gradient_scale};
  ++updates_;
}

void ShardedOptimizer::start() {
  if (!pending_ || table_.beside() == StateTable::Beside::step) return;
  table_.set_number(updates_);
  const auto walk =
      std::make_shared<StateTable::Walk>(table_.begin_beside(StateTable::Beside::step, worker_context_, table_.all()));
  for (const SegmentStates& state : table_.segments())
    if (!state.keeps_masters()) context_.copy(residency_.read(state.at, state.scope), state.next);
  worker_context_.stream->wait(context_.stream->record());
  done_ = worker_->submit([this, walk] {
    arrived_.wait();
    table_.run(
        *walk, [](const TileView&) {},
        [&](const TileView& tile) {
          for (const TrainedPiece& piece : tile.of->pieces)
            update_piece(tile, piece, pending_->lr, pending_->gradient_scale, {});
        });
  });
}

bool ShardedOptimizer::land() {
  if (!pending_) return false;
  start();
  wait_beside();
  table_.end_beside();
  for (const SegmentStates& state : table_.segments()) {
    residency_.begin_update(state.at, Pool::device, /*reads=*/false);
    context_.copy(state.next, table_.parameter_of(state));
    residency_.end_update(state.at);
  }
  pending_.reset();
  if (!table_.offload().delay_after) drop_room_for_delay();
  return true;
}

void ShardedOptimizer::load_pending(const StateSource& source, const PendingUpdate& pending) {
  require(!pending_ && updates_ > 0, "a pending update is loaded where none can be");
  make_room_for_delay();
  for (const SegmentStates& state : table_.segments())
    for (const StateTile& tile : state.tiles)
      for (const TrainedPiece& piece : tile.pieces)
        fill(table_.context_of(state.held), source, StateKind::gradient, *piece.parameter,
             global_elements(*piece.parameter, mesh_, piece.piece.in_parameter), state.part(piece, state.held));
  arrived_ = {};
  pending_ = pending;
}

}  // namespace nought
