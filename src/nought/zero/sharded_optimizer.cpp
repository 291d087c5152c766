#include "nought/zero/sharded_optimizer.h"

#include <algorithm>

#include "nought/zero/placement.h"

namespace nought {

namespace {

/// On a device that is the host, what moves there is a view: it stays.
OffloadOptions for_device(OffloadOptions options, const Memory& memory) {
  if (options.home == Pool::host && memory.device().is_host()) options.home = Pool::device;
  return options;
}

/// What the host computes with beside a device that it has no access to.
Context host_context(const Context& device) { return {device.memory, make_cpu_kernels()}; }

}  // namespace

ShardedOptimizer::ShardedOptimizer(const Context& context, const Mesh& mesh, DType dtype, OptimizerOptions options,
                                   const std::vector<std::unique_ptr<Unit>>& units, Residency& residency,
                                   Reducer& reducer, const OffloadOptions& offload)
    : context_(context),
      local_(context),
      mesh_(mesh),
      options_(std::move(options)),
      offload_(for_device(offload, *context.memory)),
      units_(units),
      reducer_(reducer),
      residency_(residency) {
  require(dtype != DType::f64, "training runs in f32, bf16 or f16 with fp32 states, not in f64");
  const bool moves = offload_.home != Pool::device;
  store_ = std::make_unique<StateStore>(context_, moves ? context_.memory->host_pool() : Pool::device, offload_,
                                        fmt::format("rank {}", mesh_.world().rank()));
  if (moves && !context_.memory->device().is_host()) {
    local_ = host_context(context_);
    transfers_ = std::make_unique<UpdateTransfers>(context_, store_->places());
  }
  for (const SegmentIndex at : segments_of(units_, /*trainable=*/true)) states_.push_back(make_state(at, dtype));
  store_->open();
}

Interval ShardedOptimizer::scope(SegmentIndex at) const {
  const Partition& partition = residency_.partition(at);
  return residency_.policy(at).shard_optimizer ? partition.owned(residency_.ranks(at).rank())
                                               : Interval{0, partition.padded()};
}

bool ShardedOptimizer::SegmentState::is_directed() const {
  return std::any_of(rules.begin(), rules.end(),
                     [](const ParameterRule& rule) { return gives_direction(rule.method); });
}

ShardedOptimizer::SegmentState ShardedOptimizer::make_state(SegmentIndex at, DType dtype) {
  SegmentState state;
  state.at = at;
  state.ranks = &residency_.ranks(at);
  state.scope = scope(at);
  state.parameter = residency_.policy(at).shard_optimizer ? residency_.owned(at) : residency_.stored(at);
  // What the host updates beside a device it keeps itself: nothing but gradients flows down.
  state.keeps_masters = transfers_ || (dtype != DType::f32 && options_.master_weights);
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
                  .most = offload_.home == Pool::device ? 0 : offload_.sub_group,
                  .cuts_pieces = !std::holds_alternative<LambOptions>(options_.method)};
  if (state.keeps_masters) rules.masters = options_.master_weights ? DType::f32 : state.parameter.dtype();
  state.tiles = make_tiles(pieces_of(state), state.scope, rules);
  for (const StateTile& tile : state.tiles) state.stored.push_back(store_->add(tile.rows));
  return state;
}

/// Cut at the borders of all ranks' shards.
std::vector<TrainedPiece> ShardedOptimizer::pieces_of(const SegmentState& state) const {
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

StateTraffic ShardedOptimizer::traffic() const {
  const SwapTraffic files = store_->traffic();
  StateTraffic traffic{.read = files.read, .written = files.written};
  if (transfers_) traffic.down = transfers_->bytes_down(), traffic.up = transfers_->bytes_up();
  return traffic;
}

Tensor ShardedOptimizer::owned_sums_of_squares() {
  const Tensor sum = context_.empty({1}, DType::f64, Category::workspace);
  Tensor sums = context_.zeros({static_cast<int64_t>(units_.size())}, DType::f64, Category::workspace);
  for (const SegmentState& state : states_) {
    const auto [begin, end] = state.counted;
    if (state.counted.empty()) continue;
    const auto unit = static_cast<int64_t>(state.at.unit);
    context_.run(SumSquares{.x = reducer_.owned(state.at).flat(begin, end), .out = sum});
    context_.run(AddTo{.x = sum, .into = sums.flat(unit, unit + 1)});
  }
  return sums;
}

void ShardedOptimizer::walk(std::span<const SegmentState* const> segments, const Rows& rows,
                            const std::function<void(const Tile&)>& fetch,
                            const std::function<void(const Tile&)>& work) const {
  std::vector<StateStore::Use> uses;
  std::vector<Tile> tiles;
  int64_t most = 0;
  for (const SegmentState* state : segments)
    for (size_t i = 0; i < state->tiles.size(); ++i) {
      tiles.push_back({*state, &state->tiles[i], uses.size() % store_->places()});
      uses.push_back({state->stored[i], rows.reads, rows.writes});
      most = std::max(most, state->tiles[i].numel);
    }
  if (transfers_) transfers_->begin(most);
  store_->run(
      uses,
      [&](size_t i) {
        if (transfers_) transfers_->free_place(tiles[i].place);
        fetch(tiles[i]);
      },
      [&](size_t i, const std::vector<Tensor>& tensors) {
        if (transfers_) transfers_->arrive(tiles[i].place);
        tiles[i].rows = &tensors;
        work(tiles[i]);
      });
  if (transfers_) transfers_->end();
}

void ShardedOptimizer::fetch_gradients(const Tile& tile) const {
  if (!transfers_) return;
  const Tensor gradients = reducer_.reduced(tile.state.at);
  for (const TrainedPiece& piece : tile.of->pieces)
    transfers_->down(tile.state.part(piece, gradients),
                     transfers_->room(tile.place, UpdateTransfers::Room::gradients, piece.in_tile, gradients.dtype()),
                     tile.place);
}

Tensor ShardedOptimizer::local(const Tile& tile, const TrainedPiece& piece, UpdateTransfers::Room room,
                               const Tensor& scoped) const {
  return transfers_ ? transfers_->room(tile.place, room, piece.in_tile, scoped.dtype())
                    : tile.state.part(piece, scoped);
}

Tensor ShardedOptimizer::parameter_copy(const Tile& tile, const TrainedPiece& piece) const {
  const bool differs = !transfers_ || tile.master(piece).dtype() != tile.state.parameter.dtype();
  if (!tile.state.keeps_masters || !differs) return {};
  return local(tile, piece, UpdateTransfers::Room::parameters, tile.state.parameter);
}

void ShardedOptimizer::send_parameter(const Tile& tile, const TrainedPiece& piece) const {
  if (!transfers_) return;
  const Tensor copy = parameter_copy(tile, piece);
  transfers_->up(copy ? copy : tile.master(piece), tile.state.part(piece, tile.state.parameter), tile.place);
}

Tensor ShardedOptimizer::workspace(const Shape& shape, DType dtype) const {
  return Tensor::empty(*local_.memory, shape, dtype, Category::workspace, transfers_ ? Pool::host : Pool::device);
}

UpdateSpan ShardedOptimizer::span_of(const Tile& tile, const TrainedPiece& piece, double lr,
                                     double gradient_scale) const {
  UpdateSpan span{.parameter = tile.master(piece),
                  .gradient = local(tile, piece, UpdateTransfers::Room::gradients, reducer_.reduced(tile.state.at)),
                  .parameter_copy = parameter_copy(tile, piece),
                  .states = {},
                  .lr = lr * piece.rule.lr_scale,
                  .weight_decay = piece.rule.weight_decay,
                  .gradient_scale = gradient_scale,
                  .step = updates_};
  for (const PieceState& each : piece.states) span.states.push_back(tile.values(each));
  return span;
}

void ShardedOptimizer::in_f32(const Tile& tile, const TrainedPiece& piece, const UpdateSpan& span,
                              const std::function<void(const UpdateSpan&, Interval)>& f) const {
  const int64_t numel = span.parameter.numel();
  const bool narrow_parameter = span.parameter.dtype() != DType::f32;
  const bool narrow_states =
      std::any_of(span.states.begin(), span.states.end(), [](const Tensor& t) { return t.dtype() != DType::f32; });
  if (!narrow_parameter && !narrow_states) return f(span, Interval{0, numel});
  const int64_t stride = round_up(kStretch, std::max<int64_t>(options_.state_block, 1));
  const auto make_room = [&] { return workspace({std::min(stride, numel)}, DType::f32); };
  std::vector<Tensor> room(narrow_states ? span.states.size() : 0);
  for (Tensor& each : room) each = make_room();
  const Tensor wide_parameter = narrow_parameter ? make_room() : Tensor{};
  for (int64_t begin = 0; begin < numel; begin += stride) {
    const Interval stretch{begin, std::min(numel, begin + stride)};
    UpdateSpan each = span;
    const Tensor own = span.parameter.flat(stretch.begin, stretch.end);
    each.parameter = narrow_parameter ? wide_parameter.flat(0, stretch.size()) : own;
    if (span.gradient) each.gradient = span.gradient.flat(stretch.begin, stretch.end);
    if (span.parameter_copy) each.parameter_copy = span.parameter_copy.flat(stretch.begin, stretch.end);
    if (narrow_parameter) local_.run(Cast{.x = own, .y = each.parameter});
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

void ShardedOptimizer::update(double lr, double gradient_scale) {
  ++updates_;
  std::vector<const SegmentState*> elementwise;
  for (const SegmentState& state : states_)
    if (!state.is_directed()) elementwise.push_back(&state);
  walk(
      elementwise, {}, [&](const Tile& tile) { fetch_gradients(tile); },
      [&](const Tile& tile) {
        for (const TrainedPiece& piece : tile.of->pieces) update_piece(tile, piece, lr, gradient_scale, {});
      });
  for (const SegmentState& state : states_)
    if (state.is_directed()) update_directed(state, lr, gradient_scale);
}

void ShardedOptimizer::update_piece(const Tile& tile, const TrainedPiece& piece, double lr, double gradient_scale,
                                    const Tensor& directions) const {
  const Method method = options_.momentum_cycle
                            ? with_betas(piece.rule.method, cycled_betas(*options_.momentum_cycle, updates_ - 1))
                            : piece.rule.method;
  const UpdateSpan span = span_of(tile, piece, lr, gradient_scale);
  if (!gives_direction(method)) {
    in_f32(tile, piece, span, [&](const UpdateSpan& stretch, Interval) { update_by(method, local_, stretch); });
    return send_parameter(tile, piece);
  }
  const Tensor direction = local(tile, piece, UpdateTransfers::Room::directions, directions);
  in_f32(tile, piece, span, [&](const UpdateSpan& stretch, Interval where) {
    direction_by(method, local_, stretch, direction.flat(where.begin, where.end));
  });
  if (transfers_) transfers_->up(direction, tile.state.part(piece, directions), tile.place);
}

void ShardedOptimizer::update_directed(const SegmentState& state, double lr, double gradient_scale) {
  const bool muon = std::holds_alternative<MuonOptions>(options_.method);
  const Shape sums_shape{static_cast<int64_t>(2 * state.parameters.size())};
  const Interval room = muon ? Interval{0, residency_.partition(state.at).padded()} : state.scope;
  const Tensor whole = context_.empty({room.size()}, DType::f32, Category::workspace);
  const Tensor directions = whole.flat(state.scope.begin - room.begin, state.scope.end - room.begin);
  const Tensor sums = muon ? Tensor{}
                      : transfers_
                          ? Tensor::zeros(*local_.memory, sums_shape, DType::f64, Category::workspace, Pool::host)
                          : context_.zeros(sums_shape, DType::f64, Category::workspace);
  walk(
      state, {}, [&](const Tile& tile) { fetch_gradients(tile); },
      [&](const Tile& tile) {
        for (const TrainedPiece& piece : tile.of->pieces) {
          update_piece(tile, piece, lr, gradient_scale, directions);
          if (!muon) add_squares(tile, piece, directions, sums);
        }
      });
  if (muon) {
    apply_muon(state, directions, whole, lr);
  } else {
    apply_lamb(state, directions, sum_squares(state, sums), lr);
  }
}

}  // namespace nought
