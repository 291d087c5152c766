#include "nought/zero/sharded_optimizer.h"

#include <algorithm>
#include <map>

#include "nought/tensor/random.h"

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

ShardedOptimizer::ShardedOptimizer(const Context& context, Communicator& ranks, Policy policy, DType dtype,
                                   OptimizerOptions options, const std::vector<std::unique_ptr<Unit>>& units,
                                   Residency& residency, Reducer& reducer)
    : context_(context),
      ranks_(ranks),
      policy_(policy),
      options_(std::move(options)),
      units_(units),
      reducer_(reducer),
      residency_(residency) {
  require(dtype != DType::f64, "training runs in f32, bf16 or f16 with fp32 states, not in f64");
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    UnitState state;
    state.parameter = policy_.shard_optimizer ? residency_.owned(unit) : residency_.stored(unit);
    state.master = dtype == DType::f32 || !options_.master_weights
                       ? state.parameter
                       : context_.zeros({scope(unit).size()}, DType::f32, Category::optimizer);
    state.rules = rules_for(options_, *units_[unit]);
    state.segments = segments_of(unit, state.rules);
    allocate_states(unit, state.segments);
    states_.push_back(std::move(state));
  }
}

Interval ShardedOptimizer::scope(size_t unit) const {
  const Partition& partition = residency_.partition(unit);
  return policy_.shard_optimizer ? partition.owned(ranks_.rank()) : Interval{0, partition.padded()};
}

std::vector<ShardedOptimizer::Segment> ShardedOptimizer::segments_of(size_t unit,
                                                                     const std::vector<ParameterRule>& rules) const {
  std::vector<Segment> segments;
  for (int rank = 0; rank < ranks_.size(); ++rank)
    for (const Piece& piece : pieces_in(*units_[unit], intersect(residency_.partition(unit).owned(rank), scope(unit))))
      segments.push_back({piece, rank, rules[piece.parameter], {}});
  return segments;
}

/// One tensor per kind of state, cut into the segments' parts. Elements without that state take no room in it; padding
/// does, so that shards stay equal.
void ShardedOptimizer::allocate_states(size_t unit, std::vector<Segment>& segments) const {
  struct Room {
    int64_t lacking = 0, blocks = 0, used = 0, used_blocks = 0;
    Tensor values, scales;
  };
  const int64_t block = options_.state_block;
  const auto blocks_of = [&](const Segment& segment) {
    return block > 0 ? ceil_div(segment.piece.in_unit.size(), block) : 0;
  };
  std::map<StateKind, Room> rooms;
  for (const Segment& segment : segments)
    for (const StateKind kind : segment.rule.states()) rooms[kind].blocks += blocks_of(segment);
  for (auto& [kind, room] : rooms) {
    for (const Segment& segment : segments) {
      const std::vector<StateKind> kinds = segment.rule.states();
      if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) room.lacking += segment.piece.in_unit.size();
    }
    const Shape shape{scope(unit).size() - room.lacking};
    room.values = context_.zeros(shape, block > 0 ? DType::u8 : options_.state_dtype, Category::optimizer);
    if (block > 0) room.scales = context_.zeros({room.blocks}, DType::f32, Category::optimizer);
  }
  for (Segment& segment : segments)
    for (const StateKind kind : segment.rule.states()) {
      Room& room = rooms[kind];
      const int64_t begin = room.used, first = room.used_blocks;
      room.used += segment.piece.in_unit.size(), room.used_blocks += blocks_of(segment);
      segment.states.push_back(
          {kind, room.values.flat(begin, room.used), block > 0 ? room.scales.flat(first, room.used_blocks) : Tensor{}});
    }
}

std::vector<double> ShardedOptimizer::owned_sums_of_squares() {
  Tensor sum = context_.empty({1}, DType::f64, Category::workspace);
  std::vector<double> sums;
  for (size_t unit = 0; unit < states_.size(); ++unit) {
    context_.run(SumSquares{.x = reducer_.owned(unit), .out = sum});
    sums.push_back(sum.item());
  }
  return sums;
}

Tensor ShardedOptimizer::part(size_t unit, const Segment& segment, const Tensor& scoped) const {
  const int64_t origin = scope(unit).begin;
  return scoped.flat(segment.piece.in_unit.begin - origin, segment.piece.in_unit.end - origin);
}

void ShardedOptimizer::narrow(size_t unit, const Segment& segment, StateKind kind, Interval stretch, const Tensor& x,
                              const Tensor& into) const {
  if (!options_.stochastic_rounding) return context_.run(Cast{.x = x, .y = into});
  const std::string& name = units_[unit]->parameters()[segment.piece.parameter].name;
  const uint64_t run = stable_hash(name_of(kind), options_.seed);
  context_.run(RoundStochastic{.x = x,
                               .y = into,
                               .key = stable_hash(name, run + static_cast<uint64_t>(updates_)),
                               .first = segment.piece.in_parameter.begin + stretch.begin});
}

void ShardedOptimizer::encode(size_t unit, const Segment& segment, const SegmentState& state, Interval stretch,
                              const Tensor& x) const {
  const Tensor values = state.values.flat(stretch.begin, stretch.end);
  if (values.dtype() == DType::f32) return copy(x, values);
  if (!state.scales) return narrow(unit, segment, state.kind, stretch, x, values);
  const int64_t block = options_.state_block;
  context_.run(Quantize8{.x = x,
                         .codes = values,
                         .scales = state.scales.flat(stretch.begin / block, ceil_div(stretch.end, block)),
                         .block = block,
                         .is_signed = !is_square(state.kind)});
}

void ShardedOptimizer::decode(const SegmentState& state, Interval stretch, const Tensor& x) const {
  if (!state.scales) return context_.run(Cast{.x = state.values.flat(stretch.begin, stretch.end), .y = x});
  const int64_t block = options_.state_block;
  context_.run(Dequantize8{.codes = state.values.flat(stretch.begin, stretch.end),
                           .scales = state.scales.flat(stretch.begin / block, ceil_div(stretch.end, block)),
                           .x = x,
                           .block = block,
                           .is_signed = !is_square(state.kind)});
}

template <class F>
void ShardedOptimizer::in_f32(size_t unit, const Segment& segment, const UpdateSpan& span, const F& f) const {
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
      if (narrow_states) decode(segment.states[i], stretch, each.states[i]);
    }
    f(each, stretch);
    if (narrow_parameter) narrow(unit, segment, StateKind::master, stretch, each.parameter, own);
    for (size_t i = 0; i < room.size(); ++i) encode(unit, segment, segment.states[i], stretch, each.states[i]);
  }
}

UpdateSpan ShardedOptimizer::span_of(size_t unit, const Segment& segment, double lr, double gradient_scale) const {
  const UnitState& state = states_[unit];
  const bool has_master = state.master.raw() != state.parameter.raw();
  UpdateSpan span{.parameter = part(unit, segment, state.master),
                  .gradient = part(unit, segment, reducer_.reduced(unit)),
                  .parameter_copy = has_master ? part(unit, segment, state.parameter) : Tensor{},
                  .states = {},
                  .lr = lr * segment.rule.lr_scale,
                  .weight_decay = segment.rule.weight_decay,
                  .gradient_scale = gradient_scale,
                  .step = updates_};
  for (const SegmentState& each : segment.states) span.states.push_back(each.values);
  return span;
}

void ShardedOptimizer::update(double lr, double gradient_scale) {
  ++updates_;
  for (size_t unit = 0; unit < states_.size(); ++unit) update_unit(unit, lr, gradient_scale);
}

void ShardedOptimizer::update_unit(size_t unit, double lr, double gradient_scale) {
  const std::vector<Segment>& segments = states_[unit].segments;
  const bool muon = std::holds_alternative<MuonOptions>(options_.method);
  const bool directed = std::any_of(states_[unit].rules.begin(), states_[unit].rules.end(), is_directed);
  Tensor whole, directions;
  if (directed) {
    const Interval room = muon ? Interval{0, residency_.partition(unit).padded()} : scope(unit);
    whole = context_.empty({room.size()}, DType::f32, Category::workspace);
    directions = whole.flat(scope(unit).begin - room.begin, scope(unit).end - room.begin);
  }
  for (const Segment& segment : segments) {
    const UpdateSpan span = span_of(unit, segment, lr, gradient_scale);
    const Method method = options_.momentum_cycle
                              ? with_betas(segment.rule.method, cycled_betas(*options_.momentum_cycle, updates_ - 1))
                              : segment.rule.method;
    in_f32(unit, segment, span, [&](const UpdateSpan& stretch, Interval where) {
      std::visit(
          [&](const auto& each) {
            if constexpr (Directed<std::decay_t<decltype(each)>>) {
              each.direction(context_, stretch, part(unit, segment, directions).flat(where.begin, where.end));
            } else {
              each.update(context_, stretch);
            }
          },
          method);
    });
  }
  if (directed && muon) apply_muon(unit, directions, whole, lr);
  if (directed && !muon) apply_lamb(unit, directions, lr);
}

/// p -= lr * trust ratio * direction, where the ratio is of norms over the whole parameter: the ranks' sums over what
/// they own are added in rank order, at every stage.
void ShardedOptimizer::apply_lamb(size_t unit, const Tensor& directions, double lr) {
  const auto& lamb = std::get<LambOptions>(options_.method);
  const UnitState& state = states_[unit];
  const Tensor sums =
      context_.zeros({static_cast<int64_t>(2 * units_[unit]->parameters().size())}, DType::f64, Category::workspace);
  const auto sum_at = [&](const Segment& segment, int64_t which) {
    const int64_t at = 2 * static_cast<int64_t>(segment.piece.parameter) + which;
    return sums.flat(at, at + 1);
  };
  for (const Segment& segment : state.segments) {
    if (segment.rank != ranks_.rank()) continue;
    context_.run(SumSquares{.x = part(unit, segment, state.master), .out = sum_at(segment, 0)});
    context_.run(SumSquares{.x = part(unit, segment, directions), .out = sum_at(segment, 1)});
  }
  if (ranks_.size() > 1) ranks_.wait(ranks_.all_reduce(sums));
  for (const Segment& segment : state.segments) {
    const double ratio = lamb.trust_ratio(sum_at(segment, 0).item(), sum_at(segment, 1).item());
    apply(unit, segment, directions, lr * segment.rule.lr_scale * ratio, 1);
  }
}

/// Gathers the Unit's directions, orthogonalises each matrix on one rank, in turns, and sends it to all; then every
/// rank applies what lies in its scope.
void ShardedOptimizer::apply_muon(size_t unit, const Tensor& directions, const Tensor& whole, double lr) {
  const auto& muon = std::get<MuonOptions>(options_.method);
  const std::vector<Parameter>& parameters = units_[unit]->parameters();
  const std::vector<ParameterRule>& rules = states_[unit].rules;
  if (policy_.shard_optimizer) ranks_.wait(ranks_.all_gather(directions, whole));
  std::vector<Event> arrivals;
  size_t turn = unit;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!is_directed(rules[i])) continue;
    const Tensor matrix = whole.flat(parameters[i].range.begin, parameters[i].range.end);
    const int owner = static_cast<int>(turn++ % static_cast<size_t>(ranks_.size()));
    if (owner == ranks_.rank()) muon.orthogonalize(context_, matrix.reshape(parameters[i].shape));
    if (ranks_.size() > 1) arrivals.push_back(ranks_.broadcast(matrix, owner));
  }
  for (Event& arrival : arrivals) ranks_.wait(arrival);
  for (const Segment& segment : states_[unit].segments) {
    if (!is_directed(segment.rule)) continue;
    const double step = lr * segment.rule.lr_scale;
    apply(unit, segment, directions, step, 1 - step * segment.rule.weight_decay);
  }
}

void ShardedOptimizer::apply(size_t unit, const Segment& segment, const Tensor& directions, double step,
                             double keep) const {
  UpdateSpan span = span_of(unit, segment, 0, 1);
  span.states.clear();
  const Tensor direction = part(unit, segment, directions);
  in_f32(unit, segment, span, [&](const UpdateSpan& stretch, Interval where) {
    context_.run(ApplyDirection{.parameter = stretch.parameter,
                                .direction = direction.flat(where.begin, where.end),
                                .parameter_copy = stretch.parameter_copy,
                                .step = step,
                                .keep = keep});
  });
}

void ShardedOptimizer::load(const StateSource& source, int64_t updates) {
  updates_ = updates;
  for (size_t unit = 0; unit < states_.size(); ++unit) {
    const UnitState& state = states_[unit];
    for (const Segment& segment : state.segments) {
      const Parameter& parameter = units_[unit]->parameters()[segment.piece.parameter];
      const Interval whole = segment.piece.in_parameter;
      source.fill(StateKind::master, parameter, whole, part(unit, segment, state.master));
      for (const SegmentState& each : segment.states) {
        if (!each.scales) {
          source.fill(each.kind, parameter, whole, each.values);
          continue;
        }
        const int64_t stride = round_up(kStretch, options_.state_block);
        for (int64_t begin = 0; begin < whole.size(); begin += stride) {
          const Interval stretch{begin, std::min(whole.size(), begin + stride)};
          const Tensor x = context_.empty({stretch.size()}, DType::f32, Category::workspace);
          source.fill(each.kind, parameter, {whole.begin + stretch.begin, whole.begin + stretch.end}, x);
          encode(unit, segment, each, stretch, x);
        }
      }
    }
    if (state.master.raw() != state.parameter.raw()) context_.run(Cast{.x = state.master, .y = state.parameter});
  }
}

std::vector<ShardedOptimizer::OwnedState> ShardedOptimizer::owned(size_t unit) const {
  std::vector<OwnedState> owned;
  const std::vector<Segment>& segments = states_[unit].segments;
  for (size_t i = 0; i < segments.size(); ++i) {
    if (segments[i].rank != ranks_.rank()) continue;
    owned.push_back({StateKind::master, segments[i].piece, i});
    for (const SegmentState& state : segments[i].states) owned.push_back({state.kind, segments[i].piece, i});
  }
  return owned;
}

Tensor ShardedOptimizer::values(size_t unit, const OwnedState& state) const {
  const Segment& segment = states_[unit].segments[state.segment];
  const auto in_f32 = [&](const Tensor& values) {
    if (values.dtype() == DType::f32) return values;
    const Tensor wide = context_.empty(values.shape(), DType::f32, Category::workspace);
    context_.run(Cast{.x = values, .y = wide});
    return wide;
  };
  if (state.kind == StateKind::master) return in_f32(part(unit, segment, states_[unit].master));
  const auto found = std::find_if(segment.states.begin(), segment.states.end(),
                                  [&](const SegmentState& each) { return each.kind == state.kind; });
  if (!found->scales) return in_f32(found->values);
  const Tensor x = context_.empty({state.piece.in_unit.size()}, DType::f32, Category::workspace);
  decode(*found, {0, x.numel()}, x);
  return x;
}

}  // namespace nought
