#include "nought/nn/moe.h"

#include <cmath>

namespace nought {
namespace {

/// gate and up of each expert in turn, then all downs: so that neighbours form [E, 2F, H] and [E, H, F].
ExpertWeights declare_separate(Unit& unit, const Moe::Options& o) {
  const auto add = [&](int64_t expert, const std::string& name, Shape shape, double std) {
    return unit.add(fmt::format("{}.{}.{}.weight", o.experts, expert, name), shape, Init::normal(std),
                    ParameterRole::expert);
  };
  std::vector<ParameterView> gate_up, down;
  for (int64_t e = 0; e < o.num_experts; ++e) {
    gate_up.push_back(add(e, o.gate, {o.intermediate, o.hidden}, o.std));
    gate_up.push_back(add(e, o.up, {o.intermediate, o.hidden}, o.std));
  }
  for (int64_t e = 0; e < o.num_experts; ++e)
    down.push_back(add(e, o.down, {o.hidden, o.intermediate}, o.residual_std));
  return {.gate_up = unit.join(gate_up.front(), gate_up.back(), {o.num_experts, 2 * o.intermediate, o.hidden}),
          .down = unit.join(down.front(), down.back(), {o.num_experts, o.hidden, o.intermediate})};
}

ExpertWeights declare_fused(Unit& unit, const Moe::Options& o) {
  const auto bias = [&](const char* name, int64_t features) {
    return unit.add(o.experts + name, {o.num_experts, features}, Init::zeros(), ParameterRole::bias);
  };
  ExpertWeights weights{.out_in = false};
  weights.gate_up = unit.add(o.experts + ".gate_up_proj", {o.num_experts, o.hidden, 2 * o.intermediate},
                             Init::normal(o.std), ParameterRole::expert);
  weights.gate_up_bias = bias(".gate_up_proj_bias", 2 * o.intermediate);
  weights.down = unit.add(o.experts + ".down_proj", {o.num_experts, o.intermediate, o.hidden},
                          Init::normal(o.residual_std), ParameterRole::expert);
  weights.down_bias = bias(".down_proj_bias", o.hidden);
  return weights;
}

}  // namespace

Moe::Moe(Unit& unit, const Options& o)
    : rule_(o.rule),
      num_experts_(o.num_experts),
      capacity_factor_(o.drop_tokens ? o.capacity_factor : 0),
      activation_(o.activation) {
  require<ShapeError>(o.num_experts > 0 && o.rule.top_k > 0 && o.rule.top_k <= o.num_experts,
                      "{}: a token cannot choose {} of {} experts", o.router, o.rule.top_k, o.num_experts);
  require(!o.drop_tokens || o.capacity_factor > 0, "{}: drop_tokens needs a capacity_factor above 0, got {}", o.router,
          o.capacity_factor);
  router_ = unit.add(o.router + ".weight", {o.num_experts, o.hidden}, Init::normal(o.std), ParameterRole::router);
  if (o.router_bias) router_bias_ = unit.add(o.router + ".bias", {o.num_experts}, Init::zeros(), ParameterRole::bias);
  if (!o.choice_bias.empty())
    choice_bias_ = unit.add(o.choice_bias, {o.num_experts}, Init::zeros(), ParameterRole::choice_bias);
  experts_ = o.storage == ExpertStorage::separate ? declare_separate(unit, o) : declare_fused(unit, o);
  if (o.shared) shared_.emplace(unit, *o.shared);
  if (!o.shared_gate.empty())
    shared_gate_ = unit.add(o.shared_gate + ".weight", {1, o.hidden}, Init::normal(o.std), ParameterRole::router);
}

Var Moe::shared_expert(Tape& tape, const Var& x) const {
  const Var y = (*shared_)(tape, x);
  if (!shared_gate_.defined()) return y;
  // A router of one expert, whose weight is the sigmoid of its logit.
  const RouterRule gate{.top_k = 1, .scores = RouterScores::sigmoid};
  const Routing routing = route(tape, router_logits(tape, x, shared_gate_, {}), gate, {}, nullptr, 0);
  return scale_rows(tape, y, routing.weights);
}

Var Moe::operator()(Tape& tape, const Var& x, const std::shared_ptr<RouterLog>& log, int64_t layer) const {
  const Routing routing = route(tape, router_logits(tape, x, router_, router_bias_), rule_, choice_bias_, log, layer);
  const double share = static_cast<double>(x.value.rows() * rule_.top_k) / static_cast<double>(num_experts_);
  const auto capacity = static_cast<int64_t>(std::ceil(capacity_factor_ * share));
  const ExpertRows rows = group_by_expert(tape.context(), routing.experts, num_experts_, capacity);
  if (log) {
    RouterLog::Layer& record = log->layer(layer);
    record.load = rows.load, record.dropped = rows.dropped;
  }
  const Var y = run_experts(tape, x, routing.weights, rows, experts_, activation_);
  return shared_ ? add(tape, y, shared_expert(tape, x)) : y;
}

}  // namespace nought
