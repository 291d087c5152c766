#include "nought/zero/sharded_optimizer.h"

#include <algorithm>
#include <map>

#include "nought/comm/flight_recorder.h"
#include "nought/tensor/random.h"
#include "nought/zero/orthogonalize.h"
#include "nought/zero/placement.h"

namespace nought {

namespace {

/// What is kept narrower than f32 is widened, updated and narrowed in stretches of about so many elements: they stay in
/// the cache.
constexpr int64_t kStretch = 65536;

/// True for optimizers that give a direction first.
template <class T>
concept Directed = requires(const T& t) {
  t.direction(std::declval<const Context&>(), std::declval<const UpdateSpan&>(), std::declval<const Tensor&>());
};

bool is_directed(const ParameterRule& rule) {
  return std::visit([](const auto& each) { return Directed<std::decay_t<decltype(each)>>; }, rule.method);
}

}  // namespace

ShardedOptimizer::ShardedOptimizer(const Context& context, const Mesh& mesh, DType dtype, OptimizerOptions options,
                                   const std::vector<std::unique_ptr<Unit>>& units, Residency& residency,
                                   Reducer& reducer)
    : context_(context),
      mesh_(mesh),
      options_(std::move(options)),
      units_(units),
      reducer_(reducer),
      residency_(residency) {
  require(dtype != DType::f64, "training runs in f32, bf16 or f16 with fp32 states, not in f64");
  for (const SegmentIndex at : segments_of(units_, /*trainable=*/true)) states_.push_back(make_state(at, dtype));
}

Interval ShardedOptimizer::scope(SegmentIndex at) const {
  const Partition& partition = residency_.partition(at);
  return residency_.policy(at).shard_optimizer ? partition.owned(residency_.ranks(at).rank())
                                               : Interval{0, partition.padded()};
}

ShardedOptimizer::SegmentState ShardedOptimizer::make_state(SegmentIndex at, DType dtype) const {
  SegmentState state;
  state.at = at;
  state.ranks = &residency_.ranks(at);
  state.scope = scope(at);
  state.parameter = residency_.policy(at).shard_optimizer ? residency_.owned(at) : residency_.stored(at);
  state.master = dtype == DType::f32 || !options_.master_weights
                     ? state.parameter
                     : context_.zeros({state.scope.size()}, DType::f32, Category::optimizer);
  const Unit& unit = *units_[at.unit];
  const std::vector<size_t>& members = unit.segments()[at.segment].parameters;
  for (const size_t i : members) {
    const Parameter& parameter = unit.parameters()[i];
    state.parameters.push_back(&parameter);
    state.rules.push_back(rule_for(options_, parameter));
  }
  state.writes = writes_for_all(unit.segments()[at.segment], mesh_);
  state.counted = counted_for_all(unit.segments()[at.segment], residency_.partition(at), mesh_);
  for (int rank = 0; rank < state.ranks->size(); ++rank) {
    const Interval mine = intersect(residency_.partition(at).owned(rank), state.scope);
    for (const ParameterPiece& piece : pieces_in(unit, at.segment, mine)) {
      const auto place =
          static_cast<size_t>(std::lower_bound(members.begin(), members.end(), piece.parameter) - members.begin());
      state.pieces.push_back({piece, place, state.parameters[place], rank, state.rules[place], {}});
    }
  }
  allocate_states(state);
  return state;
}

/// One tensor per kind of state, cut into the parts of the pieces. Elements without that state take no room in it;
/// padding does, so that shards stay equal.
void ShardedOptimizer::allocate_states(SegmentState& state) const {
  struct Room {
    int64_t lacking = 0, blocks = 0, used = 0, used_blocks = 0;
    Tensor values, scales;
  };
  const int64_t block = options_.state_block;
  const auto size_of = [](const TrainedPiece& piece) { return piece.piece.in_segment.size(); };
  const auto blocks_of = [&](const TrainedPiece& piece) { return block > 0 ? ceil_div(size_of(piece), block) : 0; };
  std::map<StateKind, Room> rooms;
  for (const TrainedPiece& piece : state.pieces)
    for (const StateKind kind : piece.rule.states()) rooms[kind].blocks += blocks_of(piece);
  for (auto& [kind, room] : rooms) {
    for (const TrainedPiece& piece : state.pieces) {
      const std::vector<StateKind> kinds = piece.rule.states();
      if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) room.lacking += size_of(piece);
    }
    const Shape shape{state.scope.size() - room.lacking};
    room.values = context_.zeros(shape, block > 0 ? DType::u8 : options_.state_dtype, Category::optimizer);
    if (block > 0) room.scales = context_.zeros({room.blocks}, DType::f32, Category::optimizer);
  }
  for (TrainedPiece& piece : state.pieces)
    for (const StateKind kind : piece.rule.states()) {
      Room& room = rooms[kind];
      const int64_t begin = room.used, first = room.used_blocks;
      room.used += size_of(piece), room.used_blocks += blocks_of(piece);
      piece.states.push_back(
          {kind, room.values.flat(begin, room.used), block > 0 ? room.scales.flat(first, room.used_blocks) : Tensor{}});
    }
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

void ShardedOptimizer::narrow(const TrainedPiece& piece, StateKind kind, Interval stretch, const Tensor& x,
                              const Tensor& into) const {
  if (!options_.stochastic_rounding) return context_.run(Cast{.x = x, .y = into});
  const uint64_t run = stable_hash(name_of(kind), options_.seed);
  const uint64_t key = stable_hash(piece.parameter->name, run + static_cast<uint64_t>(updates_));
  const int64_t origin = piece.piece.in_parameter.begin;
  int64_t begin = 0;
  for (const Interval& global :
       global_elements(*piece.parameter, mesh_, {origin + stretch.begin, origin + stretch.end})) {
    const int64_t end = begin + global.size();
    context_.run(
        RoundStochastic{.x = x.flat(begin, end), .y = into.flat(begin, end), .key = key, .first = global.begin});
    begin = end;
  }
}

void ShardedOptimizer::encode(const TrainedPiece& piece, const PieceState& state, Interval stretch,
                              const Tensor& x) const {
  const Tensor values = state.values.flat(stretch.begin, stretch.end);
  if (values.dtype() == DType::f32) return context_.copy(x, values);
  if (!state.scales) return narrow(piece, state.kind, stretch, x, values);
  const int64_t block = options_.state_block;
  context_.run(Quantize8{.x = x,
                         .codes = values,
                         .scales = state.scales.flat(stretch.begin / block, ceil_div(stretch.end, block)),
                         .block = block,
                         .is_signed = !is_square(state.kind)});
}

void ShardedOptimizer::decode(const PieceState& state, Interval stretch, const Tensor& x) const {
  if (!state.scales) return context_.run(Cast{.x = state.values.flat(stretch.begin, stretch.end), .y = x});
  const int64_t block = options_.state_block;
  context_.run(Dequantize8{.codes = state.values.flat(stretch.begin, stretch.end),
                           .scales = state.scales.flat(stretch.begin / block, ceil_div(stretch.end, block)),
                           .x = x,
                           .block = block,
                           .is_signed = !is_square(state.kind)});
}

template <class F>
void ShardedOptimizer::in_f32(const TrainedPiece& piece, const UpdateSpan& span, const F& f) const {
  const int64_t numel = span.parameter.numel();
  const bool narrow_parameter = span.parameter.dtype() != DType::f32;
  const bool narrow_states =
      std::any_of(span.states.begin(), span.states.end(), [](const Tensor& t) { return t.dtype() != DType::f32; });
  if (!narrow_parameter && !narrow_states) return f(span, Interval{0, numel});
  const int64_t stride = round_up(kStretch, std::max<int64_t>(options_.state_block, 1));
  const auto make_room = [&] { return context_.empty({std::min(stride, numel)}, DType::f32, Category::workspace); };
  std::vector<Tensor> room(narrow_states ? span.states.size() : 0);
  for (Tensor& each : room) each = make_room();
  const Tensor wide_parameter = narrow_parameter ? make_room() : Tensor{};
  for (int64_t begin = 0; begin < numel; begin += stride) {
    const Interval stretch{begin, std::min(numel, begin + stride)};
    UpdateSpan each = span;
    const Tensor own = span.parameter.flat(stretch.begin, stretch.end);
    each.parameter = narrow_parameter ? wide_parameter.flat(0, stretch.size()) : own;
    each.gradient = span.gradient.flat(stretch.begin, stretch.end);
    if (span.parameter_copy) each.parameter_copy = span.parameter_copy.flat(stretch.begin, stretch.end);
    if (narrow_parameter) context_.run(Cast{.x = own, .y = each.parameter});
    for (size_t i = 0; i < span.states.size(); ++i) {
      each.states[i] =
          narrow_states ? room[i].flat(0, stretch.size()) : span.states[i].flat(stretch.begin, stretch.end);
      if (narrow_states) decode(piece.states[i], stretch, each.states[i]);
    }
    f(each, stretch);
    if (narrow_parameter) narrow(piece, StateKind::master, stretch, each.parameter, own);
    for (size_t i = 0; i < room.size(); ++i) encode(piece, piece.states[i], stretch, each.states[i]);
  }
}

UpdateSpan ShardedOptimizer::span_of(const SegmentState& state, const TrainedPiece& piece, double lr,
                                     double gradient_scale) const {
  const bool has_master = state.master.raw() != state.parameter.raw();
  UpdateSpan span{.parameter = state.part(piece, state.master),
                  .gradient = state.part(piece, reducer_.reduced(state.at)),
                  .parameter_copy = has_master ? state.part(piece, state.parameter) : Tensor{},
                  .states = {},
                  .lr = lr * piece.rule.lr_scale,
                  .weight_decay = piece.rule.weight_decay,
                  .gradient_scale = gradient_scale,
                  .step = updates_};
  for (const PieceState& each : piece.states) span.states.push_back(each.values);
  return span;
}

void ShardedOptimizer::update(double lr, double gradient_scale) {
  ++updates_;
  for (const SegmentState& state : states_) update_segment(state, lr, gradient_scale);
}

void ShardedOptimizer::update_segment(const SegmentState& state, double lr, double gradient_scale) {
  const bool muon = std::holds_alternative<MuonOptions>(options_.method);
  const bool directed = std::any_of(state.rules.begin(), state.rules.end(), is_directed);
  Tensor whole, directions;
  if (directed) {
    const Interval room = muon ? Interval{0, residency_.partition(state.at).padded()} : state.scope;
    whole = context_.empty({room.size()}, DType::f32, Category::workspace);
    directions = whole.flat(state.scope.begin - room.begin, state.scope.end - room.begin);
  }
  for (const TrainedPiece& piece : state.pieces) {
    const UpdateSpan span = span_of(state, piece, lr, gradient_scale);
    const Method method = options_.momentum_cycle
                              ? with_betas(piece.rule.method, cycled_betas(*options_.momentum_cycle, updates_ - 1))
                              : piece.rule.method;
    in_f32(piece, span, [&](const UpdateSpan& stretch, Interval where) {
      std::visit(
          [&](const auto& each) {
            if constexpr (Directed<std::decay_t<decltype(each)>>) {
              each.direction(context_, stretch, state.part(piece, directions).flat(where.begin, where.end));
            } else {
              each.update(context_, stretch);
            }
          },
          method);
    });
  }
  if (directed && muon) apply_muon(state, directions, whole, lr);
  if (directed && !muon) apply_lamb(state, directions, lr);
}

/// p -= lr * trust ratio * direction, where the ratio is of norms over the whole parameter: the ranks' sums over what
/// they own are added in rank order, at every stage, and then those of the ranks that hold other parts of it.
void ShardedOptimizer::apply_lamb(const SegmentState& state, const Tensor& directions, double lr) {
  const auto& lamb = std::get<LambOptions>(options_.method);
  const Tensor sums =
      context_.zeros({static_cast<int64_t>(2 * state.parameters.size())}, DType::f64, Category::workspace);
  const auto sums_of = [&](const TrainedPiece& piece) {
    const int64_t at = 2 * static_cast<int64_t>(piece.place);
    return sums.flat(at, at + 2);
  };
  for (const TrainedPiece& piece : state.pieces) {
    if (piece.rank != state.ranks->rank()) continue;
    context_.run(SumSquares{.x = state.part(piece, state.master), .out = sums_of(piece).flat(0, 1)});
    context_.run(SumSquares{.x = state.part(piece, directions), .out = sums_of(piece).flat(1, 2)});
  }
  const FlightSubject subject(mesh_.world(), units_[state.at.unit]->name());
  std::vector<Communicator*> groups{state.ranks};
  for (const Axis axis : {Axis::tensor, Axis::expert_tensor, Axis::expert})
    if (units_[state.at.unit]->segments()[state.at.segment].cut_along.has(axis))
      groups.push_back(&ranks_along(axis, mesh_));
  for (Communicator* group : groups)
    if (group->size() > 1) group->wait(group->all_reduce(sums), *context_.stream);
  for (const TrainedPiece& piece : state.pieces)
    apply(state, piece, directions,
          {.parameter = {},
           .direction = {},
           .squares = sums_of(piece),
           .step = lr * piece.rule.lr_scale,
           .least_ratio = lamb.min_coeff,
           .greatest_ratio = lamb.max_coeff});
}

/// Gathers the segment's directions, orthogonalises each matrix on one rank, and sends it to all; then every rank
/// applies what lies in its scope.
void ShardedOptimizer::apply_muon(const SegmentState& state, const Tensor& directions, const Tensor& whole, double lr) {
  const auto& muon = std::get<MuonOptions>(options_.method);
  Communicator& ranks = *state.ranks;
  const FlightSubject subject(mesh_.world(), units_[state.at.unit]->name());
  if (residency_.policy(state.at).shard_optimizer) ranks.wait(ranks.all_gather(directions, whole), *context_.stream);
  std::vector<DirectionPart> parts;
  for (size_t i = 0; i < state.parameters.size(); ++i) {
    const Interval range = state.parameters[i]->range;
    if (is_directed(state.rules[i])) parts.push_back({state.parameters[i], whole.flat(range.begin, range.end)});
  }
  orthogonalize_parts(context_, mesh_, ranks, muon, parts, state.at.unit);
  for (const TrainedPiece& piece : state.pieces) {
    if (!is_directed(piece.rule)) continue;
    const double step = lr * piece.rule.lr_scale;
    apply(state, piece, directions,
          {.parameter = {}, .direction = {}, .step = step, .keep = 1 - step * piece.rule.weight_decay});
  }
}

void ShardedOptimizer::apply(const SegmentState& state, const TrainedPiece& piece, const Tensor& directions,
                             ApplyDirection op) const {
  UpdateSpan span = span_of(state, piece, 0, 1);
  span.states.clear();
  const Tensor direction = state.part(piece, directions);
  in_f32(piece, span, [&](const UpdateSpan& stretch, Interval where) {
    op.parameter = stretch.parameter;
    op.direction = direction.flat(where.begin, where.end);
    op.parameter_copy = stretch.parameter_copy;
    context_.run(op);
  });
}

void ShardedOptimizer::load(const StateSource& source, int64_t updates) {
  updates_ = updates;
  for (const SegmentState& state : states_) {
    for (const TrainedPiece& piece : state.pieces) {
      fill(context_, source, StateKind::master, *piece.parameter,
           global_elements(*piece.parameter, mesh_, piece.piece.in_parameter), state.part(piece, state.master));
      for (const PieceState& each : piece.states) load(source, piece, each);
    }
    if (state.master.raw() != state.parameter.raw()) context_.run(Cast{.x = state.master, .y = state.parameter});
  }
}

void ShardedOptimizer::load(const StateSource& source, const TrainedPiece& piece, const PieceState& state) const {
  const Parameter& parameter = *piece.parameter;
  const Interval whole = piece.piece.in_parameter;
  if (!state.scales)
    return fill(context_, source, state.kind, parameter, global_elements(parameter, mesh_, whole), state.values);
  const int64_t stride = round_up(kStretch, options_.state_block);
  for (int64_t begin = 0; begin < whole.size(); begin += stride) {
    const Interval stretch{begin, std::min(whole.size(), begin + stride)};
    const Tensor x = context_.empty({stretch.size()}, DType::f32, Category::workspace);
    fill(context_, source, state.kind, parameter,
         global_elements(parameter, mesh_, {whole.begin + stretch.begin, whole.begin + stretch.end}), x);
    encode(piece, state, stretch, x);
  }
}

std::vector<ShardedOptimizer::OwnedState> ShardedOptimizer::owned() const {
  std::vector<OwnedState> owned;
  for (size_t segment = 0; segment < states_.size(); ++segment)
    for (size_t i = 0; i < states_[segment].pieces.size(); ++i) {
      const TrainedPiece& piece = states_[segment].pieces[i];
      if (piece.rank != states_[segment].ranks->rank() || !states_[segment].writes) continue;
      const auto add = [&](StateKind kind) {
        owned.push_back({piece.parameter, kind, piece.piece.in_parameter, segment, i});
      };
      add(StateKind::master);
      for (const PieceState& state : piece.states) add(state.kind);
    }
  return owned;
}

Tensor ShardedOptimizer::values(const OwnedState& state) const {
  const SegmentState& segment = states_[state.segment];
  const TrainedPiece& piece = segment.pieces[state.piece];
  const auto in_f32 = [&](const Tensor& values) {
    if (values.dtype() == DType::f32) return values;
    const Tensor wide = context_.empty(values.shape(), DType::f32, Category::workspace);
    context_.run(Cast{.x = values, .y = wide});
    return wide;
  };
  if (state.kind == StateKind::master) return in_f32(segment.part(piece, segment.master));
  const auto found = std::find_if(piece.states.begin(), piece.states.end(),
                                  [&](const PieceState& each) { return each.kind == state.kind; });
  if (!found->scales) return in_f32(found->values);
  const Tensor x = context_.empty({state.in_parameter.size()}, DType::f32, Category::workspace);
  decode(*found, {0, x.numel()}, x);
  return x;
}

}  // namespace nought
