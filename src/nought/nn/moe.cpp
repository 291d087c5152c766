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

/// What an adapter adds to a product of every expert. Its factors are cut as the inputs and outputs of the weight.
ExpertLowRank declare_low_rank(Unit& unit, const Moe::Options& o, const std::string& name, const LowRank& of,
                               int64_t in, int64_t out, bool cuts_outputs) {
  require(o.tiles.empty(), "{}: an adapter of tiles", o.experts);
  // peft takes the dimensions of a parameter for [experts, out, in] unless the module says otherwise, as that of
  // `fused` does: B A is then all the same added to the parameter, and A is what gives the outputs.
  const bool out_in = o.storage != ExpertStorage::halves;
  const auto declare = [&](bool of_inputs) {
    const int64_t extent = of_inputs ? in : out;
    const bool is_a = of_inputs == out_in, is_cut = of_inputs != cuts_outputs;
    ExpertRanks::Whole whole{
        .global = is_a ? Shape{o.num_experts, of.rank, extent} : Shape{o.num_experts, extent, of.rank},
        .partial = !is_cut};
    if (is_cut) whole.dim = is_a ? 2 : 1;
    // Pairs of gate and up stay together, or all gates lie before all ups.
    if (is_cut && !of_inputs && o.storage == ExpertStorage::fused) whole.granule = 2;
    if (is_cut && !of_inputs && o.storage != ExpertStorage::fused) whole.fused = {out / 2, out / 2};
    const char factor = is_a ? 'A' : 'B';
    return o.ranks.add_all(unit, low_rank_name(name, factor), whole, start_of_factor(of, factor, out_in ? in : out),
                           ParameterRole::adapter);
  };
  const ParameterView a = declare(out_in), b = declare(!out_in);
  return {.shrink = out_in ? a : b, .expand = out_in ? b : a, .scale = of.scale, .out_in = out_in};
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
  const auto declare = [&](const std::string& name, int64_t in, int64_t out, bool cuts_outputs) {
    const LowRank* of = o.adapter->find(o.adapted_experts + name);
    return of == nullptr ? ExpertLowRank{}
                         : declare_low_rank(unit, o, o.adapted_experts + name, *of, in, out, cuts_outputs);
  };
  ExpertWeights& weights = parts_.front().weights;
  weights.gate_up_added = declare(".gate_up_proj", o.hidden, 2 * o.intermediate, true);
  weights.down_added = declare(".down_proj", o.intermediate, o.hidden, false);
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
