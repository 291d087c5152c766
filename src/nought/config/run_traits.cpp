#include "nought/config/run_traits.h"

#include "nought/optim/compressed_phase.h"

namespace nought {

bool has(const RunPlan& plan, Trait trait) {
  const Layout& layout = plan.layout;
  const ShardingOptions& sharding = layout.sharding;
  const OptimizerOptions& optimizer = sharding.optimizer;
  switch (trait) {
    case Trait::splits_model:
      return layout.data_ranks() < layout.ranks;
    case Trait::splits_experts:
      return layout.expert_ranks > 1;
    case Trait::replicates:
      return layout.replicas > 1;
    case Trait::gathers_by_hosts:
      return layout.host_ranks > 0 && sharding.codes.plain();
    case Trait::talks_to_ranks:
      return talks_to_ranks(optimizer.method);
    case Trait::updates_locally:
      return updates_locally(optimizer.method);
    case Trait::makes_local_steps:
      return layout.local_steps.has_value();
    case Trait::delays_updates:
      return sharding.offload_optimizer.delay_after.has_value();
    case Trait::offloads_states:
      return sharding.offload_optimizer.tier.pool != Pool::device;
    case Trait::states_in_files:
      return sharding.offload_optimizer.tier.pool == Pool::file;
    case Trait::parameters_in_files:
      return sharding.offload_param.tier.pool == Pool::file;
    case Trait::files_alone:
      return has(plan, Trait::parameters_in_files) && sharding.offload_param.in_memory == 0;
    case Trait::updates_weights:
      return sharding.dtype != DType::f32 && !optimizer.master_weights;
    case Trait::narrow_states:
      return !optimizer.master_weights || optimizer.state_dtype != DType::f32;
    case Trait::moves_betas:
      return optimizer.momentum_cycle.has_value();
    case Trait::clips_gradients:
      return plan.gradient_clipping > 0;
    case Trait::scales_loss:
      return plan.loss_scale.has_value();
    case Trait::skips_nonfinite:
      return plan.on_nonfinite == OnNonfinite::skip;
    case Trait::repeats_spikes:
      return plan.spiky_loss_factor > 0;
    case Trait::narrow_wire:
      return sharding.wire_dtype != sharding.gradient_dtype;
    case Trait::error_feedback:
      return sharding.codes.feedback.has_value();
    case Trait::fp8:
      return layout.fp8.scaling != Fp8Scaling::none;
    case Trait::compares_times:
      return plan.log_straggler;
    case Trait::compares_weights:
      return plan.weight_hash_interval > 0;
    case Trait::keeps_best:
      return plan.best.has_value();
  }
  fail<Error>("unknown trait of a run");
}

std::optional<Refusal> first_refused(const RunPlan& plan, std::initializer_list<Refusal> refusals) {
  for (const Refusal& each : refusals)
    if (has(plan, each.trait)) return each;
  return std::nullopt;
}

}  // namespace nought
