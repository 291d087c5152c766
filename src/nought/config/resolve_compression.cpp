// What travels compressed at ZeRO stage 0: the 1-bit optimizers, and gradients as factors of low rank.
#include <algorithm>
#include <cmath>

#include "nought/config/resolve_steps.h"

namespace nought {

namespace {

bool is_one_bit(const Method& method) {
  return std::holds_alternative<OneBitAdamOptions>(method) || std::holds_alternative<ZeroOneAdamOptions>(method) ||
         std::holds_alternative<OneBitLambOptions>(method);
}

/// The first update for which ranks do not send all of their gradients.
int64_t first_compressed(const Method& method) {
  if (const auto* adam = std::get_if<OneBitAdamOptions>(&method)) return adam->freeze_step + 1;
  if (const auto* lamb = std::get_if<OneBitLambOptions>(&method)) return lamb->freeze_step + 1;
  const auto& zero_one = std::get<ZeroOneAdamOptions>(method);
  const int64_t every_one =
      zero_one.var_update_scaler + zero_one.var_update_scaler % 2;  // at first, and then every other
  return std::min(zero_one.var_freeze_step, every_one) + 1;
}

}  // namespace

/// Both need whole gradients and states on every rank, and ranks that differ in nothing but their samples.

Method resolve_one_bit(Resolver& r, const OptimizerArgs& args, std::pair<double, double> betas, double eps) {
  const std::string prefix = "deepspeed.optimizer.params.", &type = r.ds.optimizer.type.value;
  const auto count = [&](const char* key, const Setting<int64_t>& setting) {
    const auto value = r.section_value(prefix + key, setting);
    require_at_least<int64_t>(value, 1);
    return r.note(key, value);
  };
  const auto number = [&](const char* key, const Setting<double>& setting) {
    const auto value = r.section_value(prefix + key, setting);
    require_finite_at_least_zero(value);
    return r.note(key, value);
  };
  const auto [beta1, beta2] = betas;
  if (type == "OneBitAdam")
    return OneBitAdamOptions{
        .beta1 = beta1, .beta2 = beta2, .eps = eps, .freeze_step = count("freeze_step", args.freeze_step)};
  if (type == "ZeroOneAdam")
    return ZeroOneAdamOptions{.beta1 = beta1,
                              .beta2 = beta2,
                              .eps = eps,
                              .var_freeze_step = count("var_freeze_step", args.var_freeze_step),
                              .var_update_scaler = count("var_update_scaler", args.var_update_scaler),
                              .local_step_scaler = count("local_step_scaler", args.local_step_scaler),
                              .local_step_clipper = count("local_step_clipper", args.local_step_clipper)};
  const OneBitLambOptions lamb{.beta1 = beta1,
                               .beta2 = beta2,
                               .eps = eps,
                               .min_coeff = number("min_coeff", args.min_coeff),
                               .max_coeff = number("max_coeff", args.max_coeff),
                               .freeze_step = count("freeze_step", args.freeze_step),
                               .coeff_beta = number("coeff_beta", args.coeff_beta),
                               .factor_max = number("factor_max", args.factor_max),
                               .factor_min = number("factor_min", args.factor_min),
                               .factor_threshold = number("factor_threshold", args.factor_threshold)};
  const auto in_order = [&](const char* low, double least, const char* high, double most) {
    require<ConfigError>(least <= most, "{}: {} {} is above {} {}", r.origins.place("deepspeed.optimizer.params"), low,
                         least, high, most);
  };
  in_order("min_coeff", lamb.min_coeff, "max_coeff", lamb.max_coeff);
  in_order("factor_min", lamb.factor_min, "factor_max", lamb.factor_max);
  require<ConfigError>(lamb.coeff_beta < 1 && lamb.factor_threshold < 1,
                       "{}: coeff_beta {} and factor_threshold {} must be below 1",
                       r.origins.place("deepspeed.optimizer.params"), lamb.coeff_beta, lamb.factor_threshold);
  return lamb;
}

void resolve_comm_hook(Resolver& r) {
  const CommHookArgs& args = r.config.training.ddp_comm_hook;
  const auto at = [&](const char* key, const auto& setting) {
    return r.training(fmt::format("ddp_comm_hook.{}", key), setting);
  };
  const auto hook = at("comm_hook", args.comm_hook);
  if (hook.value == "no") return;
  require<ConfigError>(hook.value == "power_sgd",
                       "{} = \"{}\": expected \"no\" or \"power_sgd\"; gradients travel in 16 bits by "
                       "deepspeed.communication_data_type",
                       hook.place, hook.value);
  const auto noted = [&](const char* key, const auto& setting, auto least) {
    const auto value = at(key, setting);
    require_at_least(value, least);
    return r.note(fmt::format("ddp_comm_hook.{}", key), value);
  };
  r.note("ddp_comm_hook.comm_hook", hook);
  r.plan.layout.sharding.power_sgd =
      PowerSgdOptions{.rank = noted("matrix_approximation_rank", args.matrix_approximation_rank, int64_t{1}),
                      .start_iter = noted("start_powerSGD_iter", args.start_powerSGD_iter, int64_t{0}),
                      .min_compression_rate = noted("min_compression_rate", args.min_compression_rate, 0.0),
                      .use_error_feedback = noted("use_error_feedback", args.use_error_feedback, false),
                      .warm_start = noted("warm_start", args.warm_start, false),
                      .seed = r.plan.seed};
  require<ConfigError>(std::isfinite(r.plan.layout.sharding.power_sgd->min_compression_rate),
                       "{}: expected a finite number", r.origins.place("training.ddp_comm_hook.min_compression_rate"));
}

void check_compression(Resolver& r) {
  const bool one_bit = is_one_bit(r.plan.layout.sharding.optimizer.method);
  if (!one_bit && !r.plan.layout.sharding.power_sgd) return;
  const std::string what = one_bit ? r.origins.place("deepspeed.optimizer.type") + " = " + r.ds.optimizer.type.value
                                   : r.origins.place("training.ddp_comm_hook.comm_hook") + " = \"power_sgd\"";
  const auto refuse_if = [&](bool is, std::string_view why) {
    require<ConfigError>(!is, "{} is not supported {}", what, why);
  };
  refuse_if(one_bit && r.plan.layout.sharding.power_sgd,
            "beside training.ddp_comm_hook, which sums gradients: remove one of them");
  refuse_if(r.plan.layout.zero_stage != 0,
            "at ZeRO stages 1 to 3: every rank needs all gradients and states; set "
            "zero_optimization.stage to 0");
  refuse_if(
      r.plan.layout.data_ranks() != r.plan.layout.ranks || r.plan.layout.replicas > 1 || r.plan.layout.expert_ranks > 1,
      "where ranks differ in more than their samples, or form replicas: leave tp_size, cp_size, sp_size, "
      "pp_size, ep_size and dp_replicate_size at 1");
  refuse_if(r.plan.layout.sharding.offload_optimizer.tier.pool != Pool::device ||
                r.plan.layout.sharding.offload_optimizer.delay_after,
            "with offload_optimizer or training.delayed_update: remove them");
  r.plan.resolved.push_back(
      {"reduction",
       one_bit ? fmt::format("{} in one bit from update {} on",
                             std::holds_alternative<ZeroOneAdamOptions>(r.plan.layout.sharding.optimizer.method)
                                 ? "gradients and moves"
                                 : "momenta",
                             first_compressed(r.plan.layout.sharding.optimizer.method))
               : fmt::format("factors of rank {} from update {} on", r.plan.layout.sharding.power_sgd->rank,
                             r.plan.layout.sharding.power_sgd->start_iter + 1),
       one_bit ? "deepspeed: optimizer.type" : "training.ddp_comm_hook.comm_hook"});
  if (one_bit) {
    refuse_if(
        !r.plan.layout.sharding.optimizer.master_weights || r.plan.layout.sharding.optimizer.state_dtype != DType::f32,
        "without fp32 masters and states: remove bf16_master_weights_and_grads and bf16_optimizer_states");
    refuse_if(r.plan.layout.sharding.optimizer.momentum_cycle.has_value(),
              "with a scheduler that moves the betas: set cycle_momentum "
              "to false");
    refuse_if(std::holds_alternative<ZeroOneAdamOptions>(r.plan.layout.sharding.optimizer.method) &&
                  r.plan.weight_hash_interval > 0,
              "with training.check_weight_hash_across_dp_replicas_interval: between two synchronizations each rank has "
              "weights "
              "of its own");
    return;
  }
  refuse_if(r.plan.loss_scale.has_value(),
            "with a loss scale: what was left out has the scale of its own step; use "
            "bf16");
  refuse_if(r.plan.spiky_loss_factor > 0,
            "with training.spiky_loss_factor: a step is not computed again, as its "
            "reduction has changed what was left out");
  refuse_if(r.plan.layout.sharding.wire_dtype != r.plan.layout.sharding.gradient_dtype,
            "with communication_data_type: factors travel in fp32, and what "
            "is no matrix in the dtype of gradients");
}

}  // namespace nought
