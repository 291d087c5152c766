#include "nought/zero/state_table.h"

#include <algorithm>

#include "nought/offload/host_context.h"
#include "nought/zero/placement.h"

namespace nought {

namespace {

/// On a device that is the host, what moves there is a view: it stays.
OffloadOptions for_device(OffloadOptions options, const Memory& memory) {
  if ((options.tier.pool == Pool::host && memory.device().is_host()) || options.ratio == 0)
    options.tier.pool = Pool::device;
  return options;
}

}  // namespace

StateTable::StateTable(const Context& context, const Mesh& mesh, DType dtype, const OptimizerOptions& options,
                       const std::vector<std::unique_ptr<Unit>>& units, Residency& residency, const Reducer& reducer,
                       const OffloadOptions& offload)
    : context_(context),
      local_(context),
      mesh_(mesh),
      options_(options),
      offload_(for_device(offload, *context.memory)),
      units_(units),
      reducer_(reducer),
      residency_(residency) {
  require(dtype != DType::f64, "training runs in f32, bf16 or f16 with fp32 states, not in f64");
  const GradientStore* const gradients = reducer_.store();
  reads_files_ = gradients && gradients->in_file();
  require(!reads_files_ || offload_.gradients() == Pool::file,
          "gradients are in files, but what updates them expects them in memory");
  store_ = std::make_unique<StateStore>(context_, offload_, fmt::format("rank {}", mesh_.world().rank()),
                                        reads_files_ ? gradients : nullptr);
  if (by_host()) local_ = host_context(context_);
  const std::vector<SegmentIndex> segments = segments_of(units_, /*trainable=*/true);
  for (int64_t stay = staying_tiles(segments, dtype); const SegmentIndex at : segments) {
    SegmentStates& state = states_.emplace_back(make_state(at, dtype, stay));
    for (const StateTile& tile : state.tiles) state.stored.push_back(store_->add(tile.rows, tile.stays));
    stay = std::max<int64_t>(stay - static_cast<int64_t>(state.tiles.size()), 0);
  }
  store_->open();
}

int64_t StateTable::staying_tiles(const std::vector<SegmentIndex>& segments, DType dtype) const {
  if (offload_.tier.pool == Pool::device || offload_.ratio == 1) return 0;
  int64_t tiles = 0;
  for (const SegmentIndex at : segments) tiles += static_cast<int64_t>(make_state(at, dtype, 0).tiles.size());
  return offload_.staying(tiles);
}

Interval StateTable::scope(SegmentIndex at) const {
  const Partition& partition = residency_.partition(at);
  return residency_.policy(at).shard_optimizer ? partition.owned(residency_.ranks(at).rank())
                                               : Interval{0, partition.padded()};
}

SegmentStates StateTable::make_state(SegmentIndex at, DType dtype, int64_t stay) const {
  SegmentStates state;
  state.at = at;
  state.ranks = &residency_.ranks(at);
  state.scope = scope(at);
  const Unit& unit = *units_[at.unit];
  for (const size_t i : unit.segments()[at.segment].parameters) {
    const Parameter& parameter = unit.parameters()[i];
    state.parameters.push_back(&parameter);
    state.rules.push_back(rule_for(options_, parameter));
  }
  state.writes = writes_for_all(unit.segments()[at.segment], mesh_);
  state.counted = counted_for_all(unit.segments()[at.segment], residency_.partition(at), mesh_);
  TileRules rules{.states = options_.state_dtype,
                  .state_block = options_.state_block,
                  .most = offload_.tier.pool == Pool::device ? 0 : offload_.sub_group,
                  .cuts_pieces = !std::holds_alternative<LambOptions>(options_.method),
                  .stay = by_host() && residency_.elsewhere(at) ? 0 : stay,
                  .staying_masters = dtype != DType::f32 && options_.master_weights};
  // What the host updates beside a device it keeps itself: nothing but gradients flows down.
  if (by_host() || rules.staying_masters) rules.masters = options_.master_weights ? DType::f32 : residency_.dtype(at);
  state.tiles = make_tiles(pieces_of(state), state.scope, rules);
  return state;
}

/// Cut at the borders of all ranks' shards.
std::vector<TrainedPiece> StateTable::pieces_of(const SegmentStates& state) const {
  const Unit& unit = *units_[state.at.unit];
  const std::vector<size_t>& members = unit.segments()[state.at.segment].parameters;
  std::vector<TrainedPiece> pieces;
  for (int rank = 0; rank < state.ranks->size(); ++rank) {
    const Interval mine = intersect(residency_.partition(state.at).owned(rank), state.scope);
    for (const ParameterPiece& piece : pieces_in(unit, state.at.segment, mine)) {
      const auto place =
          static_cast<size_t>(std::lower_bound(members.begin(), members.end(), piece.parameter) - members.begin());
      pieces.push_back({piece, place, state.parameters[place], rank, state.rules[place]});
    }
  }
  return pieces;
}

StateTraffic StateTable::traffic() const {
  const SwapTraffic files = store_->traffic();
  StateTraffic traffic{.down = store_->copies().bytes_down(),
                       .up = store_->copies().bytes_up(),
                       .read = files.read,
                       .written = files.written};
  if (const GradientStore* const gradients = reducer_.store()) {
    const StateTraffic moved = gradients->traffic();
    traffic.down += moved.down, traffic.up += moved.up;
  }
  return traffic;
}

StateTimes StateTable::times() const {
  return {store_->traffic().seconds, waited_ + (reducer_.store() ? reducer_.store()->times().waited : 0)};
}

std::vector<const SegmentStates*> StateTable::all() const {
  std::vector<const SegmentStates*> all;
  for (const SegmentStates& state : states_) all.push_back(&state);
  return all;
}

StateTable::Walk StateTable::plan_walk(std::span<const SegmentStates* const> segments, const Rows& rows) const {
  Walk walk{.uses = {}, .tiles = {}, .rows = rows};
  for (const SegmentStates* state : segments)
    for (size_t i = 0; i < state->tiles.size(); ++i) {
      Tensor parameter;  // without work beside, only while it is updated
      if (overlap_ != Overlap::nothing) parameter = overlap_ == Overlap::step ? state->next : parameter_of(*state);
      walk.tiles.push_back({*state, &state->tiles[i], std::move(parameter), walk.uses.size() % store_->places()});
      walk.uses.push_back({state->stored[i], rows.reads, rows.writes});
      walk.most = std::max(walk.most, state->tiles[i].numel);
    }
  return walk;
}

double StateTable::run(Walk& walk, const TileWork& fetch, const TileWork& work) const {
  std::vector<TileView>& tiles = walk.tiles;
  const bool alone = overlap_ == Overlap::nothing, writes = alone && walk.rows.writes != 0;
  const auto is_first = [&](size_t i) { return i == 0 || &tiles[i - 1].state != &tiles[i].state; };
  return store_->run(
      walk.uses,
      [&](size_t i) {
        if (writes && is_first(i)) begin_update(tiles[i].state, walk.rows.reads != 0);
        fetch(tiles[i]);
      },
      [&](size_t i, const std::vector<Tensor>& tensors) {
        TileView& tile = tiles[i];
        tile.rows = &tensors;
        if (alone) tile.parameter = parameter_of(tile.state);
        work(tile);
        if (alone) tile.parameter = {};
        if (writes && (i + 1 == tiles.size() || is_first(i + 1))) end_update(tile.state);
      });
}

void StateTable::walk(std::span<const SegmentStates* const> segments, const Rows& rows, const TileWork& fetch,
                      const TileWork& work) const {
  Walk walk = plan_walk(segments, rows);
  store_->begin(walk.most);
  waited_ += run(walk, fetch, work);
  store_->end();
}

void StateTable::fetch_gradients(const TileView& tile) const {
  if (reads_gradients(tile.state))
    return store_->read_gradients(*reducer_.stored(tile.state.at), tile.of->pieces, tile.state.scope.begin,
                                  reducer_.dtype(), tile.place);
  const Tensor gradients = gradients_of(tile.state);
  StateStore* const moved = transfers(tile);
  if (!moved || gradients.on_host()) return;
  for (const TrainedPiece& piece : tile.of->pieces)
    moved->down(tile.state.part(piece, gradients),
                moved->room(tile.place, StateStore::Room::gradients, piece.in_tile, gradients.dtype()), tile.place);
}

Tensor StateTable::gradient_of(const TileView& tile, const TrainedPiece& piece) const {
  if (reads_gradients(tile.state))
    return store_->room(tile.place, StateStore::Room::gradients, piece.in_tile, reducer_.dtype());
  return local(tile, piece, StateStore::Room::gradients, gradients_of(tile.state));
}

Tensor StateTable::local(const TileView& tile, const TrainedPiece& piece, StateStore::Room room,
                         const Tensor& scoped) const {
  StateStore* const moved = transfers(tile);
  return moved && !scoped.on_host() ? moved->room(tile.place, room, piece.in_tile, scoped.dtype())
                                    : tile.state.part(piece, scoped);
}

void StateTable::begin_update(const SegmentStates& state, bool reads) const {
  const std::vector<StateTile>& tiles = state.tiles;
  const auto stays = [](const StateTile& tile) { return tile.stays; };
  const bool on_host = by_host() && std::none_of(tiles.begin(), tiles.end(), stays);
  residency_.begin_update(state.at, on_host ? Pool::host : Pool::device, reads && !state.keeps_masters());
}

void StateTable::end_update(const SegmentStates& state) const {
  if (by_host() && residency_.elsewhere(state.at)) store_->copies().join();  // some tiles may have been sent up
  residency_.end_update(state.at);
}

Tensor StateTable::parameter_of(const SegmentStates& state) const {
  const Tensor kept = residency_.updating(state.at);
  const int64_t first = residency_.kept(state.at).begin;
  return kept ? kept.flat(state.scope.begin - first, state.scope.end - first) : Tensor{};
}

Tensor StateTable::parameter_copy(const TileView& tile, const TrainedPiece& piece) const {
  const bool differs = !transfers(tile) || tile.master(piece).dtype() != tile.parameter.dtype();
  if (!tile.of->keeps_masters || !differs) return {};
  return local(tile, piece, StateStore::Room::parameters, tile.parameter);
}

void StateTable::send_parameter(const TileView& tile, const TrainedPiece& piece) const {
  StateStore* const moved = transfers(tile);
  if (!moved) return;
  const Tensor copy = parameter_copy(tile, piece), into = tile.state.part(piece, tile.parameter);
  if (!tile.parameter.on_host()) return moved->up(copy ? copy : tile.master(piece), into, tile.place);
  if (!copy) context_of(into).copy(tile.master(piece), into);
}

Tensor StateTable::workspace(const Tensor& beside, const Shape& shape, DType dtype) const {
  return Tensor::empty(*context_.memory, shape, dtype, Category::workspace,
                       by_host() && beside.on_host() ? Pool::host : Pool::device);
}

std::vector<Tensor> StateTable::stretch_rooms(const Tensor& beside, size_t rooms, int64_t numel) const {
  std::vector<Tensor> taken;
  for (size_t i = 0; i < rooms; ++i)
    taken.push_back(i < held_rooms_.size() ? held_rooms_[i].flat(0, numel) : workspace(beside, {numel}, DType::f32));
  return taken;
}

void StateTable::in_f32(const TileView& tile, const TrainedPiece& piece, const UpdateSpan& span,
                        const std::function<void(const UpdateSpan&, Interval)>& f) const {
  const int64_t numel = span.parameter.numel();
  const bool narrow_parameter = span.parameter.dtype() != DType::f32;
  const bool narrow_states =
      std::any_of(span.states.begin(), span.states.end(), [](const Tensor& t) { return t.dtype() != DType::f32; });
  if (!narrow_parameter && !narrow_states) return f(span, Interval{0, numel});
  const int64_t stride = round_up(kStretch, std::max<int64_t>(options_.state_block, 1));
  std::vector<Tensor> room = stretch_rooms(
      span.parameter, (narrow_states ? span.states.size() : 0) + (narrow_parameter ? 1 : 0), std::min(stride, numel));
  Tensor wide_parameter;
  if (narrow_parameter) wide_parameter = room.back(), room.pop_back();
  for (int64_t begin = 0; begin < numel; begin += stride) {
    const Interval stretch{begin, std::min(numel, begin + stride)};
    UpdateSpan each = span;
    const Tensor own = span.parameter.flat(stretch.begin, stretch.end);
    each.parameter = narrow_parameter ? wide_parameter.flat(0, stretch.size()) : own;
    if (span.gradient) each.gradient = span.gradient.flat(stretch.begin, stretch.end);
    if (span.parameter_copy) each.parameter_copy = span.parameter_copy.flat(stretch.begin, stretch.end);
    if (narrow_parameter) context_of(own).run(Cast{.x = own, .y = each.parameter});
    for (size_t i = 0; i < span.states.size(); ++i) {
      each.states[i] =
          narrow_states ? room[i].flat(0, stretch.size()) : span.states[i].flat(stretch.begin, stretch.end);
      if (narrow_states) decode(tile.at(piece.states[i]), stretch, each.states[i]);
    }
    f(each, stretch);
    if (narrow_parameter) narrow(piece, StateKind::master, stretch, each.parameter, own);
    for (size_t i = 0; i < room.size(); ++i) encode(piece, tile.at(piece.states[i]), stretch, each.states[i]);
  }
}

StateTable::Walk StateTable::begin_overlap(Overlap with, const Context& by,
                                           std::span<const SegmentStates* const> segments) {
  overlap_ = with;
  worker_context_ = by;
  Walk walk = plan_walk(segments, {});
  hold_rooms(walk);
  if (overlap_ == Overlap::backward)
    for (const SegmentStates* state : segments)
      if (reads_gradients(*state) || (by_host() && !gradients_of(*state).on_host()))
        store_->hold(StateStore::Room::gradients, reducer_.dtype());
  return walk;
}

void StateTable::end_overlap() {
  store_->release();
  held_rooms_.clear();
  overlap_ = Overlap::nothing;
}

void StateTable::hold_rooms(const Walk& walk) {
  store_->begin(walk.most);
  store_->hold(walk.uses);
  bool narrow_states = options_.state_block > 0 || options_.state_dtype != DType::f32, narrow_parameters = false;
  size_t states = 0;
  for (const TileView& tile : walk.tiles) {
    const DType updated = tile.of->keeps_masters ? tile.of->rows[0].dtype : tile.parameter.dtype();
    narrow_parameters |= updated != DType::f32;
    if (by_host() && updated != tile.parameter.dtype())
      store_->hold(StateStore::Room::parameters, tile.parameter.dtype());
    for (const TrainedPiece& piece : tile.of->pieces) states = std::max(states, piece.states.size());
  }
  const size_t rooms = (narrow_states ? states : 0) + (narrow_parameters ? 1 : 0);
  const int64_t stretch = std::min(round_up(kStretch, std::max<int64_t>(options_.state_block, 1)), walk.most);
  for (size_t i = 0; i < rooms; ++i)
    held_rooms_.push_back(Tensor::empty(*context_.memory, {stretch}, DType::f32, Category::workspace,
                                        by_host() ? Pool::host : Pool::device));
}

}  // namespace nought
