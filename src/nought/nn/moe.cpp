#include "nought/nn/moe.h"

#include <cmath>

#include "nought/parallel/conjugate.h"

namespace nought {
namespace {

/// gate and up of each expert in turn, then all downs: so that neighbours form [E, 2F, H] and [E, H, F].
ExpertWeights declare_separate(Unit& unit, const Moe::Options& o) {
  const auto add = [&](int64_t expert, const std::string& name, const ExpertRanks::Whole& whole, double std) {
    return o.ranks.add_one(unit, fmt::format("{}.{}.{}.weight", o.experts, expert, name), expert, o.num_experts, whole,
                           Init::normal(std));
  };
  const ExpertRanks::Whole up{.global = {o.intermediate, o.hidden}, .dim = 0};
  const ExpertRanks::Whole down{.global = {o.hidden, o.intermediate}, .dim = 1};
  std::vector<ParameterView> ups, downs;
  for (int64_t e = 0; e < o.num_experts; ++e) {
    ups.push_back(add(e, o.gate, up, o.std));
    ups.push_back(add(e, o.up, up, o.std));
  }
  for (int64_t e = 0; e < o.num_experts; ++e) downs.push_back(add(e, o.down, down, o.residual_std));
  const int64_t held = o.ranks.held(o.num_experts).size(), width = o.ranks.tensor().part(o.intermediate).size();
  return {.gate_up = unit.join(ups.front(), ups.back(), {held, 2 * width, o.hidden}),
          .down = unit.join(downs.front(), downs.back(), {held, o.hidden, width})};
}

ExpertWeights declare_fused(Unit& unit, const Moe::Options& o) {
  const int64_t experts = o.num_experts, pairs = 2 * o.intermediate;
  const auto add = [&](const char* name, const ExpertRanks::Whole& whole, Init init, ParameterRole role) {
    return o.ranks.add_all(unit, o.experts + name, whole, init, role);
  };
  const Init zeros = Init::zeros(), normal = Init::normal(o.std), residual = Init::normal(o.residual_std);
  using enum ParameterRole;
  ExpertWeights weights{.out_in = false, .adds_down_bias = o.ranks.tensor().rank() == 0};
  // A pair of gate and up stays together.
  weights.gate_up =
      add(".gate_up_proj", {.global = {experts, o.hidden, pairs}, .dim = 2, .granule = 2}, normal, expert);
  weights.gate_up_bias = add(".gate_up_proj_bias", {.global = {experts, pairs}, .dim = 1, .granule = 2}, zeros, bias);
  weights.down = add(".down_proj", {.global = {experts, o.intermediate, o.hidden}, .dim = 1}, residual, expert);
  weights.down_bias = add(".down_proj_bias", {.global = {experts, o.hidden}}, zeros, bias);
  return weights;
}

}  // namespace

Moe::Moe(Unit& unit, const Options& o)
    : rule_(o.rule),
      num_experts_(o.num_experts),
      capacity_factor_(o.drop_tokens ? o.capacity_factor : 0),
      activation_(o.activation),
      ranks_(o.ranks) {
  require<ShapeError>(o.num_experts > 0 && o.rule.top_k > 0 && o.rule.top_k <= o.num_experts,
                      "{}: a token cannot choose {} of {} experts", o.router, o.rule.top_k, o.num_experts);
  require(!o.drop_tokens || o.capacity_factor > 0, "{}: drop_tokens needs a capacity_factor above 0, got {}", o.router,
          o.capacity_factor);
  const auto add = [&](const std::string& name, Shape shape, Init init, ParameterRole role) {
    return o.slicing.add_partial(unit, name, std::move(shape), init, role);
  };
  router_ = add(o.router + ".weight", {o.num_experts, o.hidden}, Init::normal(o.std), ParameterRole::router);
  if (o.router_bias) router_bias_ = add(o.router + ".bias", {o.num_experts}, Init::zeros(), ParameterRole::bias);
  if (!o.choice_bias.empty())
    choice_bias_ = unit.add(o.choice_bias, {o.num_experts}, Init::zeros(), ParameterRole::choice_bias);
  experts_ = o.storage == ExpertStorage::separate ? declare_separate(unit, o) : declare_fused(unit, o);
  if (o.shared) shared_.emplace(unit, *o.shared);
  if (!o.shared_gate.empty())
    shared_gate_ = add(o.shared_gate + ".weight", {1, o.hidden}, Init::normal(o.std), ParameterRole::router);
}

Var Moe::shared_expert(Tape& tape, const Var& x, const TokenSlices& slices) const {
  const Var y = (*shared_)(tape, x, slices);
  if (!shared_gate_.defined()) return y;
  // A router of one expert, whose weight is the sigmoid of its logit.
  const RouterRule gate{.top_k = 1, .scores = RouterScores::sigmoid};
  const Routing routing = route(tape, router_logits(tape, x, shared_gate_, {}), gate, {}, nullptr, 0);
  return scale_rows(tape, y, routing.weights);
}

Var Moe::operator()(Tape& tape, const Var& x, const std::shared_ptr<RouterLog>& log, int64_t layer,
                    const TokenSlices& slices) const {
  // All ranks that share matrices route all tokens, and each token counts once.
  const Var logits = gather_for_all(tape, router_logits(tape, x, router_, router_bias_), slices);
  const Routing routing = route(tape, logits, rule_, choice_bias_, log, layer);
  const double share = static_cast<double>(routing.experts.numel()) / static_cast<double>(num_experts_);
  const auto capacity = static_cast<int64_t>(std::ceil(capacity_factor_ * share));
  const ExpertRows rows = group_by_expert(tape.context(), routing.experts, num_experts_, capacity);
  if (log) {
    RouterLog::Layer& record = log->layer(layer);
    record.load = rows.load, record.dropped = rows.dropped;
  }
  const TokenDispatch dispatch = ranks_.several() ? TokenDispatch(tape.context(), rows, ranks_.group()) : rows;
  const TensorRanks& tensor = ranks_.tensor();
  // Each rank knows a part of the gradients of x and of the weights: what its features of each expert add to them.
  // The router keeps x: nothing is saved by computing it again.
  const Var part = run_experts(tape, enter_ranks(tape, Var{x.value, x.slot}, tensor, slices),
                               copy_to_ranks(tape, routing.weights, tensor), dispatch, experts_, activation_);
  const Var y = leave_ranks(tape, part, tensor, slices);
  return shared_ ? add(tape, y, shared_expert(tape, x, slices)) : y;
}

}  // namespace nought
