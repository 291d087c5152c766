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
  for (const SegmentState& state : states_)
    require<ConfigError>(!state.is_directed(),
                         "an update of Lamb or Muon cannot be put off: it needs norms or matrices of whole parameters, "
                         "for which ranks talk to each other; use another optimizer, or switch "
                         "training.delayed_update off");
  require<ConfigError>(!by_host_ || offload_.ratio == 1,
                       "an update of states of which a part stays on the device (ratio {}) cannot be put off: set "
                       "offload_optimizer.ratio to 1, or switch training.delayed_update off",
                       offload_.ratio);
  make_room_for_delay();
}

void ShardedOptimizer::make_worker() {
  if (worker_) return;
  const bool on_device = !by_host_ && !context_.memory->device().is_host();
  worker_context_ = host_context(context_);
  if (on_device) worker_context_ = {context_.memory, context_.kernels, context_.memory->device().make_stream("update")};
  const bool is_thread = !on_device && !context_.memory->is_virtual();
  worker_ = std::make_unique<Stream>(is_thread ? Stream::Kind::worker : Stream::Kind::run_inline, "update");
  // The cores of a device that is the host are at work; beside another one they are free.
  if (is_thread && !by_host_) worker_->submit(use_one_openmp_thread);
}

void ShardedOptimizer::wait_beside() {
  waited_ += seconds_of([&] { std::exchange(done_, {}).wait(); });
  context_.stream->wait(worker_context_.stream->record());
}

void ShardedOptimizer::make_room_for_delay() {
  make_worker();
  for (SegmentState& state : states_) {
    if (state.held) continue;
    const DType dtype = reducer_.dtype();
    const Shape shape{state.scope.size()};
    state.held = by_host_ ? Tensor::zeros(*context_.memory, shape, dtype, Category::gradients, Pool::host)
                          : context_.zeros(shape, dtype, Category::gradients);
    state.next = context_.zeros(shape, residency_.dtype(state.at), Category::parameters);
  }
}

void ShardedOptimizer::drop_room_for_delay() {
  for (SegmentState& state : states_) state.held = state.next = {};
}

void ShardedOptimizer::delay(double lr, double gradient_scale) {
  require(!pending_, "an update is put off while another one is pending");
  for (const SegmentState& state : states_) {
    const Tensor gradients = reducer_.reduced(state.at);
    if (by_host_ && gradients.on_host()) {
      local_.copy(gradients, state.held);
    } else if (by_host_) {
      arrived_ = store_->copies().down(gradients, state.held, {context_.stream->record()});
    } else {
      context_.copy(gradients, state.held);
    }
  }
  if (by_host_) reducer_.keep_until(arrived_);
  pending_ = {lr, gradient_scale};
  ++updates_;
}

void ShardedOptimizer::hold_rooms(const Walk& walk) {
  store_->begin(walk.most);
  store_->hold(walk.uses);
  if (reads_files_ && beside_ == Beside::backward) store_->hold(StateStore::Room::gradients, reducer_.dtype());
  bool narrow_states = options_.state_block > 0 || options_.state_dtype != DType::f32, narrow_parameters = false;
  size_t states = 0;
  for (const Tile& tile : walk.tiles) {
    const DType updated = tile.of->keeps_masters ? tile.of->rows[0].dtype : tile.parameter.dtype();
    narrow_parameters |= updated != DType::f32;
    if (by_host_ && updated != tile.parameter.dtype())
      store_->hold(StateStore::Room::parameters, tile.parameter.dtype());
    for (const TrainedPiece& piece : tile.of->pieces) states = std::max(states, piece.states.size());
  }
  const size_t rooms = (narrow_states ? states : 0) + (narrow_parameters ? 1 : 0);
  const int64_t stretch = std::min(round_up(kStretch, std::max<int64_t>(options_.state_block, 1)), walk.most);
  for (size_t i = 0; i < rooms; ++i)
    held_rooms_.push_back(Tensor::empty(*context_.memory, {stretch}, DType::f32, Category::workspace,
                                        by_host_ ? Pool::host : Pool::device));
}

void ShardedOptimizer::release_rooms() {
  store_->release();
  held_rooms_.clear();
}

void ShardedOptimizer::start() {
  if (!pending_ || beside_ == Beside::step) return;
  beside_ = Beside::step;
  number_ = updates_;
  const auto walk = std::make_shared<Walk>(plan_walk(all_states(), {}));
  hold_rooms(*walk);
  for (const SegmentState& state : states_)
    if (!state.keeps_masters()) context_.copy(residency_.read(state.at, state.scope), state.next);
  worker_context_.stream->wait(context_.stream->record());
  done_ = worker_->submit([this, walk] {
    arrived_.wait();
    run(
        *walk, [](const Tile&) {},
        [&](const Tile& tile) {
          for (const TrainedPiece& piece : tile.of->pieces)
            update_piece(tile, piece, pending_->lr, pending_->gradient_scale, {});
        });
  });
}

bool ShardedOptimizer::land() {
  if (!pending_) return false;
  start();
  wait_beside();
  release_rooms();
  beside_ = Beside::nothing;
  for (const SegmentState& state : states_) {
    residency_.begin_update(state.at, Pool::device, /*reads=*/false);
    context_.copy(state.next, parameter_of(state));
    residency_.end_update(state.at);
  }
  pending_.reset();
  if (!offload_.delay_after) drop_room_for_delay();
  return true;
}

void ShardedOptimizer::load_pending(const StateSource& source, const PendingUpdate& pending) {
  require(!pending_ && updates_ > 0, "a pending update is loaded where none can be");
  make_room_for_delay();
  for (const SegmentState& state : states_)
    for (const StateTile& tile : state.tiles)
      for (const TrainedPiece& piece : tile.pieces)
        fill(context_of(state.held), source, StateKind::gradient, *piece.parameter,
             global_elements(*piece.parameter, mesh_, piece.piece.in_parameter), state.part(piece, state.held));
  arrived_ = {};
  pending_ = pending;
}

}  // namespace nought
