#include "nought/nn/moe.h"

#include <cmath>

#include "nought/parallel/conjugate.h"

namespace nought {
namespace {

/// Features [begin, end) of every expert along a dimension that has `each` indices for one; not given: all of them.
std::optional<TensorTile> tile_along(int dim, const std::optional<Interval>& features, int64_t each = 1) {
  if (!features) return {};
  return TensorTile{dim, {{each * features->begin, each * features->end}}};
}

/// What the ranks that share F have of it, and this one of that.
int64_t width_of(const Moe::Options& o, const std::optional<Interval>& features) {
  return o.ranks.tensor().part(features ? features->size() : o.intermediate).size();
}

/// gate and up of each expert in turn, then all downs: so that neighbours form [E, 2F, H] and [E, H, F].
ExpertWeights declare_separate(Unit& unit, const Moe::Options& o, const std::optional<Interval>& features) {
  const auto add = [&](int64_t expert, const std::string& name, const ExpertRanks::Whole& whole, double std) {
    return o.ranks.add_one(unit, fmt::format("{}.{}.{}.weight", o.experts, expert, name), expert, o.num_experts, whole,
                           Init::normal(std));
  };
  const ExpertRanks::Whole up{.global = {o.intermediate, o.hidden}, .dim = 0, .tile = tile_along(0, features)};
  const ExpertRanks::Whole down{.global = {o.hidden, o.intermediate}, .dim = 1, .tile = tile_along(1, features)};
  std::vector<ParameterView> ups, downs;
  for (int64_t e = 0; e < o.num_experts; ++e) {
    ups.push_back(add(e, o.gate, up, o.std));
    ups.push_back(add(e, o.up, up, o.std));
  }
  for (int64_t e = 0; e < o.num_experts; ++e) downs.push_back(add(e, o.down, down, o.residual_std));
  const int64_t held = o.ranks.held(o.num_experts).size(), width = width_of(o, features);
  return {.gate_up = unit.join(ups.front(), ups.back(), {held, 2 * width, o.hidden}),
          .down = unit.join(downs.front(), downs.back(), {held, o.hidden, width})};
}

/// bias_unit: it has the bias of the results; null: another tile adds it.
ExpertWeights declare_fused(Unit& unit, const Moe::Options& o, const std::optional<Interval>& features,
                            Unit* bias_unit) {
  const int64_t experts = o.num_experts, pairs = 2 * o.intermediate;
  const auto add = [&](const char* name, const ExpertRanks::Whole& whole, Init init, ParameterRole role) {
    return o.ranks.add_all(unit, o.experts + name, whole, init, role);
  };
  const Init zeros = Init::zeros(), normal = Init::normal(o.std), residual = Init::normal(o.residual_std);
  using enum ParameterRole;
  ExpertWeights weights{.out_in = false, .adds_down_bias = o.ranks.tensor().rank() == 0};
  // A pair of gate and up stays together.
  weights.gate_up =
      add(".gate_up_proj",
          {.global = {experts, o.hidden, pairs}, .dim = 2, .granule = 2, .tile = tile_along(2, features, 2)}, normal,
          expert);
  weights.gate_up_bias =
      add(".gate_up_proj_bias",
          {.global = {experts, pairs}, .dim = 1, .granule = 2, .tile = tile_along(1, features, 2)}, zeros, bias);
  weights.down =
      add(".down_proj", {.global = {experts, o.intermediate, o.hidden}, .dim = 1, .tile = tile_along(1, features)},
          residual, expert);
  if (bias_unit != nullptr)
    weights.down_bias =
        o.ranks.add_all(*bias_unit, o.experts + ".down_proj_bias", {.global = {experts, o.hidden}}, zeros, bias);
  return weights;
}

ExpertWeights declare_halves(Unit& unit, const Moe::Options& o) {
  const int64_t experts = o.num_experts, width = o.intermediate;
  return {.gate_up = o.ranks.add_all(unit, o.experts + ".gate_up_proj",
                                     {.global = {experts, o.hidden, 2 * width}, .dim = 2, .fused = {width, width}},
                                     Init::normal(o.std)),
          .down = o.ranks.add_all(unit, o.experts + ".down_proj", {.global = {experts, width, o.hidden}, .dim = 1},
                                  Init::normal(o.residual_std)),
          .out_in = false};
}

}  // namespace

Moe::Moe(Unit& unit, const Options& o)
    : rule_(o.rule),
      num_experts_(o.num_experts),
      capacity_factor_(o.drop_tokens ? o.capacity_factor : 0),
      quantized_dispatch_(o.quantized_dispatch),
      scales_input_(o.scales_input),
      activation_(o.activation),
      ranks_(o.ranks) {
  require<ShapeError>(o.num_experts > 0 && o.rule.top_k > 0 && o.rule.top_k <= o.num_experts,
                      "{}: a token cannot choose {} of {} experts", o.router, o.rule.top_k, o.num_experts);
  require(!o.drop_tokens || o.capacity_factor > 0, "{}: drop_tokens needs a capacity_factor above 0, got {}", o.router,
          o.capacity_factor);
  require(!o.scales_input || o.rule.top_k == 1, "{}: weights of {} choices cannot scale what experts read", o.router,
          o.rule.top_k);
  require(o.storage != ExpertStorage::halves || o.tiles.empty(),
          "{}: experts whose gates lie before all ups have no tiles", o.experts);
  const auto add = [&](const std::string& name, Shape shape, Init init, ParameterRole role) {
    return o.slicing.add_partial(unit, name, std::move(shape), init, role);
  };
  router_ = add(o.router + ".weight", {o.num_experts, o.hidden}, Init::normal(o.std), ParameterRole::router);
  if (o.router_bias) router_bias_ = add(o.router + ".bias", {o.num_experts}, Init::zeros(), ParameterRole::bias);
  if (!o.choice_bias.empty())
    choice_bias_ = unit.add(o.choice_bias, o.choice_bias_row ? Shape{1, o.num_experts} : Shape{o.num_experts},
                            Init::zeros(), ParameterRole::choice_bias);
  const auto declare = [&](Unit& into, const std::optional<Interval>& features, Unit* bias_unit) {
    if (o.storage == ExpertStorage::halves) return declare_halves(into, o);
    return o.storage == ExpertStorage::separate ? declare_separate(into, o, features)
                                                : declare_fused(into, o, features, bias_unit);
  };
  if (o.tiles.empty()) parts_.push_back({nullptr, declare(unit, {}, &unit)});
  const auto count = static_cast<int>(o.tiles.size());
  for (int index = 0; index < count; ++index) {
    Unit& tile = *o.tiles[static_cast<size_t>(index)];
    const TensorTile features = tile_of({o.intermediate}, 0, {}, index, count);
    parts_.push_back({&tile, declare(tile, features.kept.front(), index == 0 ? &unit : nullptr)});
  }
  if (o.shared) shared_.emplace(unit, *o.shared);
  declare_adapter(unit, o);
  if (!o.shared_gate.empty())
    shared_gate_ = add(o.shared_gate + ".weight", {1, o.hidden}, Init::normal(o.std), ParameterRole::router);
}

void Moe::declare_adapter(Unit& unit, const Options& o) {
  if (o.adapter == nullptr) return;
  const auto gate = [&](const std::string& name, int64_t outputs) {
    return AdapterProducts(
        unit, *o.adapter,
        {.in = o.hidden, .names = {name}, .out = {outputs}, .width = {outputs}, .slicing = o.slicing});
  };
  router_added_ = gate(o.adapted_router, o.num_experts);
  if (!o.shared_gate.empty()) shared_gate_added_ = gate(o.adapted_shared_gate, 1);
  const auto declare = [&](const std::string& name, int64_t out, int64_t in, bool cuts_outputs) {
    const LowRank* of = o.adapter->find(o.adapted_experts + name);
    if (of == nullptr) return ExpertLowRank{};
    require(o.storage == ExpertStorage::separate && o.tiles.empty(), "{}: an adapter of fused experts or of tiles",
            o.experts);
    const Init a = start_of_factor(*of, 'A', in), b = start_of_factor(*of, 'B', in);
    const ExpertRanks::Whole outputs{
        .global = {o.num_experts, out, of->rank},
        .dim = cuts_outputs ? std::optional(1) : std::nullopt,
        .fused = cuts_outputs ? std::vector<int64_t>{out / 2, out / 2} : std::vector<int64_t>{},
        .partial = !cuts_outputs};
    const ExpertRanks::Whole inputs{.global = {o.num_experts, of->rank, in},
                                    .dim = cuts_outputs ? std::nullopt : std::optional(2),
                                    .partial = cuts_outputs};
    const auto add = [&](char factor, const ExpertRanks::Whole& whole, const Init& init) {
      return o.ranks.add_all(unit, low_rank_name(o.adapted_experts + name, factor), whole, init,
                             ParameterRole::adapter);
    };
    const ParameterView first = add('A', inputs, a);
    return ExpertLowRank{.a = first, .b = add('B', outputs, b), .scale = of->scale};
  };
  ExpertWeights& weights = parts_.front().weights;
  weights.gate_up_added = declare(".gate_up_proj", 2 * o.intermediate, o.hidden, true);
  weights.down_added = declare(".down_proj", o.hidden, o.intermediate, false);
}

Var Moe::logits_of(Tape& tape, const Var& x, const ParameterView& router, const ParameterView& bias,
                   const AdapterProducts& added) {
  const Var logits = router_logits(tape, x, router, bias);
  if (added.add_nothing(tape)) return logits;
  const Tensor zeros = tape.context().zeros(logits.value.shape(), x.value.dtype());
  return add_widened(tape, logits, added.add_to(tape, Tape::constant(zeros), x));
}

Var Moe::shared_expert(Tape& tape, const Var& x, const TokenSlices& slices) const {
  const Var y = (*shared_)(tape, x, slices);
  if (!shared_gate_.defined()) return y;
  // A router of one expert, whose weight is the sigmoid of its logit.
  const RouterRule gate{.top_k = 1, .scores = RouterScores::sigmoid};
  const Routing routing = route(tape, logits_of(tape, x, shared_gate_, {}, shared_gate_added_), gate, {}, nullptr, 0);
  return scale_rows(tape, y, routing.weights);
}

Var Moe::operator()(Tape& tape, const Var& x, const std::shared_ptr<RouterLog>& log, int64_t layer,
                    const TokenSlices& slices) const {
  // All ranks that share matrices route all tokens, and each token counts once.
  const Var logits = gather_for_all(tape, logits_of(tape, x, router_, router_bias_, router_added_), slices);
  const Routing routing = route(tape, logits, rule_, choice_bias_, log, layer);
  const double share = static_cast<double>(routing.experts.numel()) / static_cast<double>(num_experts_);
  const auto capacity = static_cast<int64_t>(std::ceil(capacity_factor_ * share));
  const ExpertRows rows = group_by_expert(tape.context(), routing.experts, num_experts_, capacity);
  if (log) {
    RouterLog::Layer& record = log->layer(layer);
    record.load = rows.load, record.dropped = rows.dropped;
  }
  const TokenDispatch dispatch =
      ranks_.several() ? TokenDispatch(tape.context(), rows, ranks_.group(), quantized_dispatch_) : rows;
  const TensorRanks& tensor = ranks_.tensor();
  // Each rank knows a part of the gradients of x and of the weights: what its features of each expert add to them.
  // The router keeps x: nothing is saved by computing it again.
  const Var entered = enter_ranks(tape, Var{x.value, x.slot}, tensor, slices);
  const Var copied = copy_to_ranks(tape, routing.weights, tensor);
  const Var in = scales_input_ ? scale_rows(tape, entered, copied) : entered;
  const Var weights = scales_input_ ? Var() : copied;
  Var sum;
  for (const Part& part : parts_) {
    const auto body = [&](Tape& on, const Var& rows_of_x) {
      ExpertWeights own = part.weights;
      if (tape.leaves_out_adapters()) own.gate_up_added = own.down_added = {};
      return run_experts(on, rows_of_x, weights, dispatch, own, activation_);
    };
    const Var of_part = part.tile == nullptr ? body(tape, in) : tape.run_tile(*part.tile, in, body, {});
    sum = &part == &parts_.front() ? of_part : add_to(tape, sum, of_part);
  }
  const Var y = leave_ranks(tape, sum, tensor, slices);
  return shared_ ? add(tape, y, shared_expert(tape, x, slices)) : y;
}

}  // namespace nought
