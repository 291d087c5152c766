#include "nought/zero/state_table.h"

#include <algorithm>

#include "nought/base/timing.h"
#include "nought/zero/placement.h"

namespace nought {

namespace {

/// On a device that is the host, what moves there is a view: it stays.
OffloadOptions for_device(OffloadOptions options, const Memory& memory) {
  if ((options.tier.pool == Pool::host && memory.device().is_host()) || options.ratio == 0)
    options.tier.pool = Pool::device;
  return options;
}

/// The last row, of what was before an update, is no state.
StateStore::Use use_of(const SegmentStates& state, size_t tile, const StateTable::Rows& rows) {
  using Of = StateTable::Rows::Of;
  const StateTile& of = state.tiles[tile];
  const StateTable::RowSet before = of.before() ? StateTable::RowSet{1} << *of.before() : 0;
  StateStore::Use use{state.stored[tile], rows.reads & ~before, rows.writes & ~before};
  if (rows.of == Of::aside) use.writes |= before, use.aside = true;
  if (rows.of == Of::before) use.reads = of.keeps_masters ? 1 : before, use.writes = 0;
  return use;
}

const GradientStore* gradients_in_file(const Reducer& reducer) {
  return reducer.store() && reducer.store()->in_file() ? reducer.store() : nullptr;
}

}  // namespace

StateTable::StateTable(const Context& context, const Mesh& mesh, DType dtype, const OptimizerOptions& options,
                       const std::vector<std::unique_ptr<Unit>>& units, Residency& residency, const Reducer& reducer,
                       const OffloadOptions& offload)
    : mesh_(mesh),
      options_(options),
      offload_(for_device(offload, *context.memory)),
      early_(offload_.early &&
             (context.memory->device().is_host() || (offload_.tier.pool != Pool::device && offload_.ratio == 1))),
      units_(units),
      reducer_(reducer),
      residency_(residency),
      store_(std::make_unique<StateStore>(context, offload_, fmt::format("rank {}", mesh.world().rank()),
                                          gradients_in_file(reducer))),
      access_(context, *store_, reducer),
      narrow_(context, mesh, options, by_host()) {
  require(dtype != DType::f64, "training runs in f32, bf16 or f16 with fp32 states, not in f64");
  require(!access_.reads_files() || offload_.gradients() == Pool::file,
          "gradients are in files, but what updates them expects them in memory");
  const std::vector<SegmentIndex> segments = segments_of(units_, /*trainable=*/true);
  for (int64_t stay = staying_tiles(segments, dtype); const SegmentIndex at : segments) {
    SegmentStates& state = states_.emplace_back(make_state(at, dtype, stay));
    for (const StateTile& tile : state.tiles) state.stored.push_back(store_->add(tile.rows, tile.stays, state.undo));
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
  state.early = early_ && may_be_early(state), state.undo = state.early && offload_.undo;
  TileRules rules{.states = options_.state_dtype,
                  .state_block = options_.state_block,
                  .most = offload_.tier.pool == Pool::device ? 0 : offload_.sub_group,
                  .cuts_pieces = !std::holds_alternative<LambOptions>(options_.method),
                  .stay = by_host() && residency_.elsewhere(at) ? 0 : stay,
                  .staying_masters = dtype != DType::f32 && options_.master_weights};
  // What the host updates beside a device it keeps itself: nothing but gradients flows down.
  if (by_host() || rules.staying_masters) rules.masters = options_.master_weights ? DType::f32 : residency_.dtype(at);
  if (state.undo) rules.before = residency_.dtype(at);
  state.tiles = make_tiles(pieces_of(state), state.scope, rules);
  return state;
}

/// A Unit that another one reads, or another pipeline stage has, may be needed after its gradients are final here.
/// Offloaded parameters are brought and written by the rank's own thread.
bool StateTable::may_be_early(const SegmentStates& state) const {
  const Unit& unit = *units_[state.at.unit];
  const bool is_read = std::any_of(units_.begin(), units_.end(), [&](const auto& other) {
    return std::find(other->borrowed().begin(), other->borrowed().end(), &unit) != other->borrowed().end();
  });
  return !is_read && !unit.has_copy() && !unit.is_copy() && !state.talks_to_ranks() && !residency_.elsewhere(state.at);
}

/// Cut at the borders of all ranks' shards; blocks of 8-bit states at those of virtual ranks.
std::vector<TrainedPiece> StateTable::pieces_of(const SegmentStates& state) const {
  const Unit& unit = *units_[state.at.unit];
  const std::vector<size_t>& members = unit.segments()[state.at.segment].parameters;
  std::vector<TrainedPiece> pieces;
  const Partition& partition = residency_.partition(state.at);
  const auto add = [&](int rank, Interval owned) {
    for (const ParameterPiece& piece : pieces_in(unit, state.at.segment, intersect(owned, state.scope))) {
      const auto place =
          static_cast<size_t>(std::lower_bound(members.begin(), members.end(), piece.parameter) - members.begin());
      pieces.push_back({piece, place, state.parameters[place], rank, state.rules[place]});
    }
  };
  for (int rank = 0; rank < state.ranks->size(); ++rank) {
    const Interval owned = partition.owned(rank);
    if (options_.state_block == 0) {
      add(rank, owned);
      continue;
    }
    for (int i = 0; i < partition.virtual_shards(); ++i) {
      const auto [begin, end] = partition.virtual_shard(i);
      add(rank, {owned.begin + begin, owned.begin + end});
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

const SegmentStates& StateTable::at(SegmentIndex at) const {
  const auto found = std::find_if(states_.begin(), states_.end(), [&](const auto& state) { return state.at == at; });
  require(found != states_.end(), "segment {} of unit {} is not trained: it has no masters", at.segment,
          units_[at.unit]->name());
  return *found;
}

StateTable::Walk StateTable::plan_walk(std::span<const SegmentStates* const> segments, const Rows& rows) const {
  Walk walk{.uses = {}, .tiles = {}, .rows = rows};
  for (const SegmentStates* state : segments)
    for (size_t i = 0; i < state->tiles.size(); ++i) {
      Tensor parameter;  // without work beside, only while it is updated
      if (access_.overlap() != TileAccess::Overlap::nothing)
        parameter = access_.overlap() == TileAccess::Overlap::step ? state->next : parameter_of(*state);
      walk.tiles.push_back({*state, &state->tiles[i], std::move(parameter), walk.uses.size() % store_->places()});
      walk.uses.push_back(use_of(*state, i, rows));
      walk.most = std::max(walk.most, state->tiles[i].numel);
    }
  return walk;
}

void StateTable::keep_before(const TileView& tile) const {
  const Context& by = access_.context_of(tile.parameter);
  store_->copy_aside(by, tile.state.stored[static_cast<size_t>(tile.of - tile.state.tiles.data())]);
  if (!tile.of->before()) return;
  for (const TrainedPiece& piece : tile.of->pieces) by.copy(tile.master(piece), tile.before(piece));
}

void StateTable::take_aside(const SegmentStates& state) const {
  for (const size_t stored : state.stored) store_->take_aside(stored);
}

void StateTable::restore_parameters(const SegmentStates& state, bool masters) const {
  if (!masters && state.keeps_masters()) return;
  walk(
      state, {.writes = 0, .of = Rows::Of::before}, [](const TileView&) {},
      [&](const TileView& tile) {
        for (const TrainedPiece& piece : tile.of->pieces)
          if (tile.of->keeps_masters) {
            access_.write_parameter(tile, piece);
          } else {
            access_.context_of(tile.parameter).copy(tile.before(piece), tile.master(piece));
          }
      });
}

void StateTable::await_readers() const {
  if (!read_.state()) return;
  const double seconds = seconds_of([&] { read_.state()->settle(); });
  if (access_.overlap() == TileAccess::Overlap::nothing) waited_for_readers_ += seconds;
}

double StateTable::run(Walk& walk, const TileWork& fetch, const TileWork& work) const {
  if (walk.rows.writes != 0) await_readers();
  std::vector<TileView>& tiles = walk.tiles;
  const bool alone = access_.overlap() == TileAccess::Overlap::nothing, writes = alone && walk.rows.writes != 0;
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

StateTable::Walk StateTable::begin_overlap(TileAccess::Overlap with, const Context& by,
                                           std::span<const SegmentStates* const> segments) {
  access_.begin_overlap(with, by);
  const bool undo = with == TileAccess::Overlap::backward && offload_.undo;
  Walk walk = plan_walk(segments, {.of = undo ? Rows::Of::aside : Rows::Of::states});
  hold_rooms(walk);
  if (with == TileAccess::Overlap::backward)
    for (const SegmentStates* state : segments)
      if (access_.reads_gradients(*state) || (by_host() && !access_.gradients_of(*state).on_host()))
        store_->hold(StateStore::Room::gradients, reducer_.dtype());
  return walk;
}

void StateTable::end_overlap() {
  store_->release();
  narrow_.release();
  access_.end_overlap();
}

void StateTable::hold_rooms(const Walk& walk) {
  store_->begin(walk.most);
  store_->hold(walk.uses);
  bool narrow_parameters = false;
  size_t states = 0;
  for (const TileView& tile : walk.tiles) {
    const DType updated = tile.of->keeps_masters ? tile.of->rows[0].dtype : tile.parameter.dtype();
    narrow_parameters |= updated != DType::f32;
    if (by_host() && updated != tile.parameter.dtype())
      store_->hold(StateStore::Room::parameters, tile.parameter.dtype());
    for (const TrainedPiece& piece : tile.of->pieces) states = std::max(states, piece.states.size());
  }
  narrow_.hold((narrow_.narrows_states() ? states : 0) + (narrow_parameters ? 1 : 0), walk.most);
}

}  // namespace nought
