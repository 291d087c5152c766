// Workers that meet now and then: DiLoCo's local steps.
#include "nought/config/resolver.h"

namespace nought {

void Resolver::resolve_local_steps() {
  const DilocoArgs& args = config_.training.diloco;
  const auto every = training("diloco.sync_every", args.sync_every);
  if (!every.given) {
    const auto alone = [&](const char* key, bool given) {
      require<ConfigError>(!given, "{} without training.diloco.sync_every: say after how many steps workers meet",
                           origins_.place(std::string("training.diloco.") + key));
    };
    alone("num_fragments", args.num_fragments.given), alone("fragment_sync_delay", args.fragment_sync_delay.given);
    alone("fragment_update_alpha", args.fragment_update_alpha.given), alone("outer_lr", args.outer_lr.given);
    alone("outer_momentum", args.outer_momentum.given), alone("outer_nesterov", args.outer_nesterov.given);
    return;
  }
  const auto fragments = training("diloco.num_fragments", args.num_fragments);
  const auto delay = training("diloco.fragment_sync_delay", args.fragment_sync_delay);
  const auto alpha = training("diloco.fragment_update_alpha", args.fragment_update_alpha);
  const auto lr = training("diloco.outer_lr", args.outer_lr);
  const auto momentum = training("diloco.outer_momentum", args.outer_momentum);
  const auto nesterov = training("diloco.outer_nesterov", args.outer_nesterov);
  require_at_least<int64_t>(every, 1);
  require_at_least<int64_t>(fragments, 1);
  require_at_least<int64_t>(delay, 0);
  require<ConfigError>(every.value % fragments.value == 0,
                       "{} = {}: {} = {} fragments meet in turn, so it must be a multiple of that; the next one is {}",
                       every.place, every.value, fragments.place, fragments.value,
                       (every.value / fragments.value + 1) * fragments.value);
  const int64_t interval = every.value / fragments.value;
  require<ConfigError>(delay.value < interval,
                       "{} = {}: the next fragment meets {} steps after this one (sync_every / num_fragments), so the "
                       "delay is at most {}",
                       delay.place, delay.value, interval, interval - 1);
  require<ConfigError>(alpha.value >= 0 && alpha.value <= 1, "{}: expected a number in [0, 1], got {}", alpha.place,
                       alpha.value);
  require_finite_at_least_zero(lr);
  require_fraction(momentum);
  check_local_steps(every.place);
  plan_.layout.local_steps = LocalStepsOptions{.sync_every = note("diloco.sync_every", every),
                                               .fragments = note("diloco.num_fragments", fragments),
                                               .delay = note("diloco.fragment_sync_delay", delay),
                                               .keeps_local = note("diloco.fragment_update_alpha", alpha),
                                               .lr = note("diloco.outer_lr", lr),
                                               .momentum = note("diloco.outer_momentum", momentum),
                                               .nesterov = note("diloco.outer_nesterov", nesterov)};
  plan_.resolved.push_back(
      {"diloco.workers", fmt::format("{}", plan_.layout.replicas),
       "the replicas: each has the loss, the norm, the clipping and the skipped steps of its own"});
  const auto meets = [&](int64_t steps) {
    return steps % every.value == 0 && fragments.value == 1 && delay.value == 0;
  };
  if (plan_.eval_strategy == EvalStrategy::steps && !meets(plan_.eval_steps))
    warn(
        fmt::format("validations every {} steps are of the first worker's weights, which all share after every {} "
                    "steps alone",
                    plan_.eval_steps, every.value));
}

void Resolver::check_local_steps(const std::string& place) const {
  const auto refuse = [&](bool is, std::string_view what, std::string_view instead) {
    require<ConfigError>(!is, "{}: local steps and {} cannot be combined: {}", place, what, instead);
  };
  require<ConfigError>(plan_.layout.replicas > 1,
                       "{}: the replicas are the workers, and there is one: write "
                       "training.parallelism_config.dp_replicate_size, or deepspeed's mics_shard_size",
                       place);
  refuse(plan_.layout.sharding.dtype != DType::f32 && !plan_.layout.sharding.optimizer.master_weights,
         "16-bit weights without fp32 masters", "an outer step is smaller than their rounding; keep masters");
  refuse(plan_.layout.sharding.offload_optimizer.tier.pool == Pool::file, "optimizer states in files",
         "keep them in memory (offload_optimizer.device none or cpu)");
  refuse(plan_.layout.sharding.offload_param.tier.pool == Pool::file, "parameters in files",
         "keep them in memory (offload_param.device none or cpu)");
  refuse(plan_.layout.sharding.offload_optimizer.delay_after.has_value(), "training.delayed_update",
         "the update that is pending when workers meet would be lost; switch it off");
  refuse(plan_.layout.sharding.codes.feedback.has_value(), "zeropp_loco_param",
         "checkpoints keep what codes lose for the ranks of one worker alone; leave it out");
  refuse(plan_.log_straggler, "training.log_straggler",
         "it compares ranks that take every step together; leave it out");
  refuse(plan_.best.has_value(), "training.load_best_model_at_end",
         "a checkpoint holds what workers agreed on last, and a validation is of what they have now; leave it out");
  refuse(plan_.layout.host_ranks > 0 && plan_.layout.sharding.codes.plain(), "mics_hierarchical_params_gather",
         "a worker is taken to lie on one host; leave it out");
}

void Resolver::resolve_async() {
  const auto staleness = training("async_data_parallel.staleness", config_.training.async_data_parallel.staleness);
  if (!staleness.given) return;
  require_at_least<int64_t>(staleness, 0);
  const auto refuse = [&](bool is, std::string_view what) {
    require<ConfigError>(!is, "{}: asynchronous data parallelism and {} cannot be combined: leave one of them out",
                         staleness.place, what);
  };
  require<ConfigError>(plan_.layout.zero_stage == 1,
                       "{}: every rank serves the parameters whose states it has, which is ZeRO stage 1, and the stage "
                       "is {}: write deepspeed.zero_optimization.stage = 1",
                       staleness.place, plan_.layout.zero_stage);
  refuse(plan_.layout.local_steps.has_value(), "training.diloco");
  refuse(plan_.layout.data_ranks() < plan_.layout.ranks, "ranks that share matrices, layers or sequences");
  refuse(plan_.layout.replicas > 1, "replicas");
  refuse(plan_.layout.expert_ranks > 1, "ranks that hold different experts");
  refuse(plan_.loss_scale.has_value(), "fp16, whose scale goes down when a step is skipped");
  refuse(plan_.on_nonfinite == OnNonfinite::skip, "training.on_nonfinite = \"skip\"");
  refuse(plan_.spiky_loss_factor > 0, "training.spiky_loss_factor");
  refuse(plan_.layout.sharding.offload_optimizer.tier.pool != Pool::device, "offload_optimizer");
  refuse(plan_.layout.sharding.wire_dtype != plan_.layout.sharding.gradient_dtype, "communication_data_type");
  refuse(plan_.layout.fp8.scaling != Fp8Scaling::none, "fp8, whose scales all ranks agree on in every step");
  refuse(plan_.log_straggler, "training.log_straggler");
  refuse(plan_.layout.sharding.offload_optimizer.delay_after.has_value(), "training.delayed_update");
  refuse(std::holds_alternative<LambOptions>(plan_.layout.sharding.optimizer.method) ||
             std::holds_alternative<MuonOptions>(plan_.layout.sharding.optimizer.method),
         "Lamb or Muon, for whose updates ranks talk to each other");
  plan_.layout.staleness = note("async_data_parallel.staleness", staleness);
}

}  // namespace nought
