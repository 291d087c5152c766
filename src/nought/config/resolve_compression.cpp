// What travels compressed at ZeRO stage 0: the 1-bit optimizers, and gradients as factors of low rank.
#include <cmath>

#include "nought/config/resolve_steps.h"
#include "nought/config/run_traits.h"
#include "nought/optim/compressed_phase.h"

namespace nought {

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

namespace {

/// "gradients and moves in one bit from update 17 on"
std::string describe_compression(const ShardingOptions& sharding) {
  const Method& method = sharding.optimizer.method;
  if (compresses(method))
    return fmt::format("{} in one bit from update {} on", updates_locally(method) ? "gradients and moves" : "momenta",
                       first_compressed(method));
  return fmt::format("factors of rank {} from update {} on", sharding.power_sgd->rank,
                     sharding.power_sgd->start_iter + 1);
}

}  // namespace

void check_compression(Resolver& r) {
  const ShardingOptions& sharding = r.plan.layout.sharding;
  const bool one_bit = compresses(sharding.optimizer.method);
  if (!one_bit && !sharding.power_sgd) return;
  const std::string what = one_bit ? r.origins.place("deepspeed.optimizer.type") + " = " + r.ds.optimizer.type.value
                                   : r.origins.place("training.ddp_comm_hook.comm_hook") + " = \"power_sgd\"";
  const auto refuse_if = [&](bool is, std::string_view why) {
    require<ConfigError>(!is, "{} is not supported {}", what, why);
  };
  refuse_if(sharding.sparse_pruning.has_value(),
            "with compression_training.sparse_pruning, whose masks count for sums of gradients: remove one of them");
  const auto refuse = [&](std::initializer_list<Refusal> refusals) {
    if (const auto refused = first_refused(r.plan, refusals)) refuse_if(true, refused->what);
  };
  refuse_if(one_bit && sharding.power_sgd, "beside training.ddp_comm_hook, which sums gradients: remove one of them");
  refuse_if(r.plan.layout.zero_stage != 0,
            "at ZeRO stages 1 to 3: every rank needs all gradients and states; set "
            "zero_optimization.stage to 0");
  constexpr std::string_view kDiffer =
      "where ranks differ in more than their samples, or form replicas: leave tp_size, cp_size, sp_size, "
      "pp_size, ep_size and dp_replicate_size at 1";
  constexpr std::string_view kMoved = "with offload_optimizer or training.delayed_update: remove them";
  refuse({{Trait::splits_model, kDiffer},
          {Trait::replicates, kDiffer},
          {Trait::splits_experts, kDiffer},
          {Trait::offloads_states, kMoved},
          {Trait::delays_updates, kMoved}});
  r.plan.resolved.push_back({"reduction", describe_compression(sharding),
                             one_bit ? "deepspeed: optimizer.type" : "training.ddp_comm_hook.comm_hook"});
  if (one_bit) {
    refuse({{Trait::narrow_states,
             "without fp32 masters and states: remove bf16_master_weights_and_grads and bf16_optimizer_states"},
            {Trait::moves_betas, "with a scheduler that moves the betas: set cycle_momentum to false"}});
    refuse_if(has(r.plan, Trait::updates_locally) && has(r.plan, Trait::compares_weights),
              "with training.check_weight_hash_across_dp_replicas_interval: between two synchronizations each rank has "
              "weights of its own");
    return;
  }
  refuse({{Trait::scales_loss, "with a loss scale: what was left out has the scale of its own step; use bf16"},
          {Trait::repeats_spikes,
           "with training.spiky_loss_factor: a step is not computed again, as its reduction has changed what was left "
           "out"},
          {Trait::narrow_wire,
           "with communication_data_type: factors travel in fp32, and what is no matrix in the dtype of gradients"}});
}

}  // namespace nought
