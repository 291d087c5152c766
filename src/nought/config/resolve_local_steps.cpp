// Workers that synchronize now and then: DiLoCo's local steps.
#include "nought/config/resolve_steps.h"
#include "nought/config/run_traits.h"

namespace nought {

namespace {

/// What workers of local steps cannot be combined with.
void check_local_steps(const Resolver& r, const std::string& place) {
  require<ConfigError>(has(r.plan, Trait::replicates),
                       "{}: the replicas are the workers, and there is one: write "
                       "training.parallelism_config.dp_replicate_size, or deepspeed's mics_shard_size",
                       place);
  const auto refused = first_refused(
      r.plan,
      {{Trait::updates_weights, "16-bit weights without fp32 masters",
        "an outer step is smaller than their rounding; keep masters"},
       {Trait::states_in_files, "optimizer states in files",
        "keep them in memory (offload_optimizer.device none or cpu)"},
       {Trait::parameters_in_files, "parameters in files", "keep them in memory (offload_param.device none or cpu)"},
       {Trait::delays_updates, "training.delayed_update",
        "the update that is pending when workers synchronize would be lost; switch it off"},
       {Trait::error_feedback, "zeropp_loco_param",
        "checkpoints keep what codes lose for the ranks of one worker alone; leave it out"},
       {Trait::compares_times, "training.log_straggler",
        "it compares ranks that take every step together; leave it out"},
       {Trait::keeps_best, "training.load_best_model_at_end",
        "a checkpoint holds what workers agreed on last, and a validation is of what they have now; leave it out"},
       {Trait::gathers_by_hosts, "mics_hierarchical_params_gather",
        "a worker is taken to lie on one host; leave it out"}});
  if (refused)
    fail<ConfigError>("{}: local steps and {} cannot be combined: {}", place, refused->what, refused->instead);
}

}  // namespace

void resolve_local_steps(Resolver& r) {
  const DilocoArgs& args = r.config.training.diloco;
  const auto every = r.training("diloco.sync_every", args.sync_every);
  if (!every.given) {
    const auto alone = [&](const char* key, bool given) {
      require<ConfigError>(!given,
                           "{} without training.diloco.sync_every: say after how many steps workers synchronize",
                           r.origins.place(std::string("training.diloco.") + key));
    };
    alone("num_fragments", args.num_fragments.given), alone("fragment_sync_delay", args.fragment_sync_delay.given);
    alone("fragment_update_alpha", args.fragment_update_alpha.given), alone("outer_lr", args.outer_lr.given);
    alone("outer_momentum", args.outer_momentum.given), alone("outer_nesterov", args.outer_nesterov.given);
    return;
  }
  const auto fragments = r.training("diloco.num_fragments", args.num_fragments);
  const auto delay = r.training("diloco.fragment_sync_delay", args.fragment_sync_delay);
  const auto alpha = r.training("diloco.fragment_update_alpha", args.fragment_update_alpha);
  const auto lr = r.training("diloco.outer_lr", args.outer_lr);
  const auto momentum = r.training("diloco.outer_momentum", args.outer_momentum);
  const auto nesterov = r.training("diloco.outer_nesterov", args.outer_nesterov);
  require_at_least<int64_t>(every, 1);
  require_at_least<int64_t>(fragments, 1);
  require_at_least<int64_t>(delay, 0);
  require<ConfigError>(
      every.value % fragments.value == 0,
      "{} = {}: {} = {} fragments synchronize in turn, so it must be a multiple of that; the next one is {}",
      every.place, every.value, fragments.place, fragments.value,
      (every.value / fragments.value + 1) * fragments.value);
  const int64_t interval = every.value / fragments.value;
  require<ConfigError>(
      delay.value < interval,
      "{} = {}: the next fragment synchronizes {} steps after this one (sync_every / num_fragments), so the "
      "delay is at most {}",
      delay.place, delay.value, interval, interval - 1);
  require<ConfigError>(alpha.value >= 0 && alpha.value <= 1, "{}: expected a number in [0, 1], got {}", alpha.place,
                       alpha.value);
  require_finite_at_least_zero(lr);
  require_fraction(momentum);
  check_local_steps(r, every.place);
  r.plan.layout.local_steps = LocalStepsOptions{.sync_every = r.note("diloco.sync_every", every),
                                                .fragments = r.note("diloco.num_fragments", fragments),
                                                .delay = r.note("diloco.fragment_sync_delay", delay),
                                                .keeps_local = r.note("diloco.fragment_update_alpha", alpha),
                                                .lr = r.note("diloco.outer_lr", lr),
                                                .momentum = r.note("diloco.outer_momentum", momentum),
                                                .nesterov = r.note("diloco.outer_nesterov", nesterov)};
  r.plan.resolved.push_back(
      {"diloco.workers", fmt::format("{}", r.plan.layout.replicas),
       "the replicas: each has the loss, the norm, the clipping and the skipped steps of its own"});
  const auto meets = [&](int64_t steps) {
    return steps % every.value == 0 && fragments.value == 1 && delay.value == 0;
  };
  if (r.plan.eval_strategy == EvalStrategy::steps && !meets(r.plan.eval_steps))
    r.warn(
        fmt::format("validations every {} steps are of the first worker's weights, which all share after every {} "
                    "steps alone",
                    r.plan.eval_steps, every.value));
}

void resolve_async(Resolver& r) {
  const auto staleness = r.training("async_data_parallel.staleness", r.config.training.async_data_parallel.staleness);
  if (!staleness.given) return;
  require_at_least<int64_t>(staleness, 0);
  require<ConfigError>(r.plan.layout.zero_stage == 1,
                       "{}: every rank serves the parameters whose states it has, which is ZeRO stage 1, and the stage "
                       "is {}: write deepspeed.zero_optimization.stage = 1",
                       staleness.place, r.plan.layout.zero_stage);
  const auto refused =
      first_refused(r.plan, {{Trait::makes_local_steps, "training.diloco"},
                             {Trait::splits_model, "ranks that share matrices, layers or sequences"},
                             {Trait::replicates, "replicas"},
                             {Trait::splits_experts, "ranks that hold different experts"},
                             {Trait::scales_loss, "fp16, whose scale goes down when a step is skipped"},
                             {Trait::skips_nonfinite, "training.on_nonfinite = \"skip\""},
                             {Trait::repeats_spikes, "training.spiky_loss_factor"},
                             {Trait::offloads_states, "offload_optimizer"},
                             {Trait::narrow_wire, "communication_data_type"},
                             {Trait::fp8, "fp8, whose scales all ranks agree on in every step"},
                             {Trait::compares_times, "training.log_straggler"},
                             {Trait::delays_updates, "training.delayed_update"},
                             {Trait::talks_to_ranks, "Lamb or Muon, for whose updates ranks talk to each other"}});
  if (refused)
    fail<ConfigError>("{}: asynchronous data parallelism and {} cannot be combined: leave one of them out",
                      staleness.place, refused->what);
  r.plan.layout.staleness = r.note("async_data_parallel.staleness", staleness);
}

}  // namespace nought
