#include "nought/zero/update_lane.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "nought/base/timing.h"
#include "nought/offload/host_context.h"
#include "nought/zero/placement.h"

namespace nought {

UpdateLane::UpdateLane(const Context& context, const Mesh& mesh, Residency& residency, Reducer& reducer,
                       StateTable& table, Update update)
    : context_(context),
      mesh_(mesh),
      residency_(residency),
      reducer_(reducer),
      table_(table),
      update_(std::move(update)) {
  if (table_.offload().delay_after) prepare_delay();
}

void UpdateLane::make_worker() {
  if (worker_) return;
  const bool on_device = !table_.by_host() && !context_.memory->device().is_host();
  worker_context_ = host_context(context_);
  if (on_device) worker_context_ = {context_.memory, context_.kernels, context_.memory->device().make_stream("update")};
  const bool is_thread = !on_device && !context_.memory->is_virtual();
  worker_ = std::make_unique<Stream>(is_thread ? Stream::Kind::worker : Stream::Kind::run_inline, "update");
  // The cores of a device that is the host are at work; beside another one they are free.
  if (is_thread && !table_.by_host()) worker_->submit(use_one_openmp_thread);
}

void UpdateLane::wait_overlapped() {
  waited_ += seconds_of([&] { std::exchange(done_, {}).wait(); });
  context_.stream->wait(worker_context_.stream->record());
}

// --- overlapped with the backward pass ---

void UpdateLane::begin_early(const EarlyUpdate& update, int64_t number) {
  abandon_early();
  if (pending_) return;
  std::vector<const SegmentStates*> eligible;
  for (const SegmentStates& state : table_.segments())
    if (state.early) eligible.push_back(&state);
  if (eligible.empty()) return;
  make_worker();
  early_ = std::make_unique<Early>();
  early_->update = update;
  early_->begun.assign(table_.segments().size(), true);
  early_->progress.assign(table_.segments().size(), Early::Progress::none);
  for (const SegmentStates* state : eligible)
    early_->begun[static_cast<size_t>(state - table_.segments().data())] = false;
  early_->square = Tensor::empty(*context_.memory, {1}, DType::f64, Category::workspace, context_.memory->host_pool());
  table_.set_number(number);
  table_.begin_overlap(TileAccess::Overlap::backward, worker_context_, eligible);
}

void UpdateLane::update_early() {
  if (!early_) return;
  using Of = StateTable::Rows::Of;
  for (size_t i = table_.segments().size(); i-- > 0;) {
    if (early_->begun[i] || !reducer_.is_final(table_.segments()[i].at)) continue;
    early_->begun[i] = true;
    early_->segments.push_back(i);
    const SegmentStates* const state = &table_.segments()[i];
    const auto walk = std::make_shared<StateTable::Walk>(
        table_.plan_walk(std::span(&state, 1), {.of = state->undo ? Of::aside : Of::states}));
    const Event before = context_.stream->record();
    done_ = worker_->submit([this, i, walk, before, last = done_] {
      last.wait();  // throws what it threw
      if (early_->stopped) return;
      if (table_.by_host()) table_.store().copies().follow(before);
      update_early(i, *walk);
    });
  }
}

void UpdateLane::update_early(size_t segment, StateTable::Walk& walk) const {
  early_->progress[segment] = Early::Progress::some;
  table_.run(
      walk, [&](const TileView& tile) { table_.access().fetch_gradients(tile); },
      [&](const TileView& tile) {
        if (tile.state.undo) table_.keep_before(tile);
        update_early(tile);
      });
  if (!early_->stopped) early_->progress[segment] = Early::Progress::all;
}

/// A sum over this rank's part alone: the norm over all ranks is not smaller.
bool UpdateLane::Early::exceeds() const {
  return update.max_norm > 0 && std::sqrt(sum) * update.gradient_scale > update.max_norm;
}

/// Nothing behind a gradient that is not finite is updated, so that what is looked for is found in what made it; and
/// nothing behind one that makes a guess wrong.
void UpdateLane::update_early(const TileView& tile) const {
  for (const TrainedPiece& piece : tile.of->pieces) {
    if (early_->stopped) return;
    worker_context_.run(SumSquares{.x = table_.access().gradient_of(tile, piece), .out = early_->square});
    early_->sum += *early_->square.data<double>();
    if (!std::isfinite(early_->sum) || early_->exceeds()) {
      early_->stopped = true;
      return;
    }
    early_->changed = true;
    update_(tile, piece, early_->update.lr, early_->update.gradient_scale);
  }
}

std::unique_ptr<UpdateLane::Early> UpdateLane::end_early() {
  wait_overlapped();
  table_.end_overlap();
  return std::exchange(early_, {});
}

std::vector<size_t> UpdateLane::finish_early(double lr, double gradient_scale) {
  if (!early_) return {};
  const std::unique_ptr<Early> early = end_early();
  const bool right = early->update.lr == lr && early->update.gradient_scale == gradient_scale;
  std::vector<size_t> updated;
  for (const size_t i : early->segments) {
    const SegmentStates& state = table_.segments()[i];
    const bool all = early->progress[i] == Early::Progress::all;
    require(state.undo || (right && all),
            "an update was begun overlapped with the backward pass from a gradient that is not finite, or with other "
            "numbers, and can not be undone");
    if (right && all) {
      updated.push_back(i);
      if (state.undo) table_.take_aside(state);
    } else if (early->progress[i] != Early::Progress::none) {
      table_.restore_parameters(state, /*masters=*/false);  // the update to come writes them
    }
    // What other ranks keep of the parameters is old.
    residency_.begin_update(state.at, Pool::device, /*reads=*/false);
    residency_.end_update(state.at);
  }
  return updated;
}

bool UpdateLane::abandon_early() {
  if (!early_) return false;
  const std::unique_ptr<Early> early = end_early();
  if (!table_.offload().undo) return early->changed;
  for (const size_t i : early->segments)
    if (early->progress[i] != Early::Progress::none) table_.restore_parameters(table_.segments()[i], /*masters=*/true);
  return false;
}

// --- one step late ---

void UpdateLane::prepare_delay() {
  for (const SegmentStates& state : table_.segments())
    require<ConfigError>(!state.talks_to_ranks(),
                         "an update of Lamb, Muon or a 1-bit optimizer cannot be put off: it needs norms, "
                         "matrices or means, for which ranks talk to each other; use another optimizer, or switch "
                         "training.delayed_update off");
  require<ConfigError>(!table_.by_host() || table_.offload().ratio == 1,
                       "an update of states of which a part stays on the device (ratio {}) cannot be put off: set "
                       "offload_optimizer.ratio to 1, or switch training.delayed_update off",
                       table_.offload().ratio);
  make_room_for_delay();
}

void UpdateLane::make_room_for_delay() {
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

void UpdateLane::drop_room_for_delay() {
  for (SegmentStates& state : table_.segments()) state.held = state.next = {};
}

void UpdateLane::delay(double lr, double gradient_scale) {
  require(!pending_, "an update is put off while another one is pending");
  for (const SegmentStates& state : table_.segments()) {
    const Tensor gradients = reducer_.reduced(state.at);
    if (table_.by_host() && gradients.on_host()) {
      table_.access().context_of(gradients).copy(gradients, state.held);
    } else if (table_.by_host()) {
      arrived_ = table_.store().copies().down(gradients, state.held, {context_.stream->record()});
    } else {
      context_.copy(gradients, state.held);
    }
  }
  if (table_.by_host()) reducer_.keep_until(arrived_);
  pending_ = {lr, gradient_scale};
}

void UpdateLane::start(int64_t number) {
  if (!pending_ || table_.access().overlap() == TileAccess::Overlap::step) return;
  table_.set_number(number);
  const auto walk = std::make_shared<StateTable::Walk>(
      table_.begin_overlap(TileAccess::Overlap::step, worker_context_, table_.all()));
  for (const SegmentStates& state : table_.segments())
    if (!state.keeps_masters()) context_.copy(residency_.read(state.at, state.scope), state.next);
  worker_context_.stream->wait(context_.stream->record());
  done_ = worker_->submit([this, walk] {
    arrived_.wait();
    table_.run(
        *walk, [](const TileView&) {},
        [&](const TileView& tile) {
          for (const TrainedPiece& piece : tile.of->pieces)
            update_(tile, piece, pending_->lr, pending_->gradient_scale);
        });
  });
}

bool UpdateLane::complete(int64_t number) {
  if (!pending_) return false;
  start(number);
  wait_overlapped();
  table_.end_overlap();
  for (const SegmentStates& state : table_.segments()) {
    residency_.begin_update(state.at, Pool::device, /*reads=*/false);
    context_.copy(state.next, table_.parameter_of(state));
    residency_.end_update(state.at);
  }
  pending_.reset();
  if (!table_.offload().delay_after) drop_room_for_delay();
  return true;
}

void UpdateLane::load_pending(const StateSource& source, const PendingUpdate& pending) {
  require(!pending_, "a pending update is loaded where none can be");
  make_room_for_delay();
  for (const SegmentStates& state : table_.segments())
    for (const StateTile& tile : state.tiles)
      for (const TrainedPiece& piece : tile.pieces)
        fill(table_.access().context_of(state.held), source, StateKind::gradient, *piece.parameter,
             global_elements(*piece.parameter, mesh_, piece.piece.in_parameter), state.part(piece, state.held));
  arrived_ = {};
  pending_ = pending;
}

// --- as a server ---

void UpdateLane::begin_serving() {
  require(!pending_ && table_.access().overlap() == TileAccess::Overlap::nothing,
          "servers begin while an update is pending");
  for (const SegmentStates& state : table_.segments())
    require<ConfigError>(!state.talks_to_ranks(),
                         "servers cannot update by Lamb, Muon or 1-bit optimizers: ranks would talk to each other");
  require<ConfigError>(!table_.by_host() && table_.offload().tier.pool == Pool::device,
                       "servers cannot update states that are offloaded");
  make_room_for_delay();
  for (const SegmentStates& state : table_.segments())
    context_.copy(residency_.read(state.at, state.scope), state.next);
  asynchronous_ = std::make_unique<StateTable::Walk>(
      table_.begin_overlap(TileAccess::Overlap::step, worker_context_, table_.all()));
}

void UpdateLane::end_serving() {
  if (!asynchronous_) return;
  asynchronous_.reset();
  table_.end_overlap();
  drop_room_for_delay();
}

void UpdateLane::sum_held_squares(const Tensor& sums, const Tensor& room) const {
  sum_squares(worker_context_, table_.segments(), sums, room, [&](const SegmentStates& state, const Tensor& sum) {
    const auto [begin, end] = state.counted;
    if (begin < end) worker_context_.run(SumSquares{.x = state.held.flat(begin, end), .out = sum});
    return begin < end;
  });
}

void UpdateLane::update_asynchronously(double lr, double gradient_scale, int64_t number) {
  table_.set_number(number);
  table_.run(
      *asynchronous_, [](const TileView&) {},
      [&](const TileView& tile) {
        for (const TrainedPiece& piece : tile.of->pieces) update_(tile, piece, lr, gradient_scale);
      });
}

}  // namespace nought
